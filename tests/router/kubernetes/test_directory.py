"""The directory follows the TenantCorpora of a real (small) API server, and its loss changes nothing."""

import asyncio
import contextlib
import json
import random

import pytest

from groundplane.process.clock import SystemClock
from groundplane_router.directory import DirectoryState
from groundplane_router.kubernetes import client
from groundplane_router.kubernetes.directory import ALL_NAMESPACES, KubernetesDirectory
from tests.support.corpora import UIDS, condition, resource

ACME = "system:serviceaccount:agents:acme-agent"
GLOBEX = "system:serviceaccount:agents:globex-agent"


class Following:
    """A directory that follows `server`, in a task of its own."""

    def __init__(self, api, namespaces):
        self.states: list[DirectoryState] = []
        self.directory = KubernetesDirectory(
            api, namespaces, clock=SystemClock(), rng=random.Random(1), on_change=self.states.append
        )
        self.task = asyncio.create_task(self.directory.run())

    @property
    def state(self):
        return self.directory.state

    def state_of(self, name="acme"):
        found = [corpus.state for corpus in self.state.corpora if corpus.name.endswith(f"/{name}")]
        return found[0] if found else None

    def reaches(self, subject=ACME):
        grants = self.state.grants_of(subject)
        return None if grants is None else grants.own.key

    async def stop(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def follow(server, api, until):
    running = []

    async def start(*namespaces):
        running.append(Following(api, namespaces or ALL_NAMESPACES))
        await until(lambda: running[-1].directory.is_loaded)
        return running[-1]

    yield start
    for one in running:
        await one.stop()


async def test_it_holds_what_is_there(server, follow):
    """A subject reaches its own corpus and the platform's."""
    await server.apply(resource())
    await server.apply(resource("platform"))
    following = await follow()
    grants = following.state.grants_of(ACME)

    assert (grants.own.key, grants.platform.key) == ("t-acme", "platform")


async def test_it_is_loaded_although_there_is_nothing(follow):
    """An empty cluster is an answer; a router that waits for the first tenant would never be ready."""
    following = await follow()

    assert following.state.corpora == ()


async def test_it_is_not_loaded_before_every_namespace_was_listed(server, api, until):
    """A subject of the missing one would be refused."""
    await server.apply(resource(namespace="agents"))
    server.status, server.faulty_part = 403, "/namespaces/corpora/"
    following = Following(api, ("agents", "corpora"))
    await until(lambda: server.watch_count == 1 and server.calls("/namespaces/corpora/") >= 2)

    assert not following.directory.is_loaded
    assert following.state.corpora == ()
    server.status = None
    await until(lambda: following.directory.is_loaded)
    await following.stop()


async def test_only_the_namespaces_that_were_named_count(server, follow):
    """Whoever may write into another namespace gains nothing here."""
    await server.apply(resource(namespace="mine"))
    await server.apply(resource("globex", namespace="other"))
    following = await follow("mine", "third")

    assert (following.reaches(), following.reaches(GLOBEX)) == ("t-acme", None)
    assert {path for _, path, _ in server.seen} == {
        f"/apis/groundplane.dev/v1alpha1/namespaces/{name}/tenantcorpora" for name in ("mine", "third")
    }


async def test_creation_change_and_deletion_are_followed(server, follow, until):
    """Within two seconds of the operator's word."""
    following = await follow()
    await server.apply(resource())
    await until(lambda: following.reaches() == "t-acme", seconds=2)
    await server.apply(resource(conditions=[condition("Suspended")]))
    await until(lambda: following.state_of() == "corpus_suspended", seconds=2)
    await server.apply(resource(subjects=[]))
    await until(lambda: following.reaches() is None, seconds=2)
    await server.delete("corpora", "acme")
    await until(lambda: following.state.corpora == (), seconds=2)


async def test_a_resource_created_again_under_its_name_is_another_corpus(server, follow, until):
    """Nothing of the old life may be reached through the new one."""
    await server.apply(resource())
    following = await follow()
    await server.delete("corpora", "acme")
    uid = "a0000000-0000-4000-8000-000000000000"
    await server.apply(resource(metadata={"uid": uid}, incarnation=uid))

    await until(lambda: [corpus.incarnation for corpus in following.state.corpora] == [uid])


async def test_what_does_not_change_the_directory_makes_no_new_state(server, follow, until):
    """Each operator's poll writes documents and sequence of every corpus."""
    await server.apply(resource())
    following = await follow()
    await server.apply(resource(documents=900, sequence=5_000))
    await server.apply(resource("globex"))
    await until(lambda: following.reaches(GLOBEX) is not None)

    assert len(following.states) == 2


async def test_changes_that_come_together_are_one_state(server, follow, until):
    """A roll-out changes every corpus, and each state is made anew as a whole."""
    following = await follow()
    await until(lambda: server.watch_count == 1)
    for number in range(30):
        await server.apply(resource(subjects=[{"namespace": "agents", "serviceAccount": f"agent-{number}"}]))
    await until(lambda: following.reaches("system:serviceaccount:agents:agent-29") == "t-acme")

    assert len(following.states) < 15


async def test_a_list_of_many_pages_is_one_state(server, follow, monkeypatch):
    """Half a list would refuse the other half's callers."""
    monkeypatch.setattr("groundplane_router.kubernetes.list_watch.PAGE_SIZE", 2)
    for name in UIDS:
        await server.apply(resource(name))
    following = await follow()

    assert len(following.state.corpora) == 3
    assert len(following.states) == 1
    assert server.calls("continue") == 1


async def test_a_broken_watch_goes_on_where_it_was(server, follow, until):
    """Without listing everything again: load balancers cut long connections."""
    following = await follow()
    await until(lambda: server.watch_count == 1)
    await server.apply(resource())
    await until(lambda: following.reaches() is not None)
    await server.break_watches()
    await server.apply(resource(conditions=[condition("Suspended")]))
    await until(lambda: following.state_of() == "corpus_suspended", seconds=2)

    assert server.calls("limit") == 1


async def test_a_bookmark_is_where_a_watch_goes_on(server, follow, until):
    """A version from before a quiet hour is no longer kept."""
    following = await follow()
    await until(lambda: server.watch_count == 1)
    await server.bookmark()
    marked = str(server.version)
    await until(lambda: following.directory._watches[0]._version == marked)
    await server.break_watches()
    await until(lambda: server.seen[-1][2].get("resourceVersion") == marked)


async def test_a_version_that_is_no_longer_kept_is_listed_again(server, follow, until):
    """410: what was missed meanwhile is in the list, and what is gone is not."""
    await server.apply(resource())
    following = await follow()
    await until(lambda: server.watch_count == 1)
    async with server._changed:
        del server.objects["corpora", "acme"]
    await server.expire()
    await server.apply(resource("globex"))

    await until(lambda: following.reaches(GLOBEX) == "t-globex")
    assert following.reaches() is None
    assert server.calls("limit") == 2


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"{\n", id="no-json"),
        pytest.param(b'{"type":"CHANGED","object":{"metadata":{"resourceVersion":"7"}}}\n', id="unknown-type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{}}}\n', id="no-version"),
        pytest.param(b'{"type":"ERROR","object":{"code":500,"reason":"InternalError"}}\n', id="internal-error"),
        pytest.param(b"x" * (4 * 1024 * 1024 + 1), id="endless-line"),
        pytest.param(b"[" * 100_000 + b"\n", id="deep"),
    ],
)
async def test_an_event_that_cannot_be_read_is_made_good_by_a_list(server, follow, until, line):
    """Whatever it said would be missing for ever."""
    await server.apply(resource())
    following = await follow()
    await until(lambda: server.watch_count == 1)
    with contextlib.suppress(ConnectionError):
        await server.send(line)

    await until(lambda: server.calls("limit") == 2)
    assert following.reaches() == "t-acme"


async def test_the_last_state_stays_while_the_api_server_is_away(server, follow, until, caplog):
    """Grounding goes on without a control plane; it is said once, and the age grows."""
    caplog.set_level("INFO")
    await server.apply(resource())
    following = await follow()
    await server.stop()
    tries = len(server.seen)
    age = following.directory.age_seconds
    await until(lambda: following.directory.age_seconds > age + 0.5)
    assert following.reaches() == "t-acme"

    await server.apply(resource(conditions=[condition("Suspended")]))
    await server.start()
    await until(lambda: following.state_of() == "corpus_suspended")
    events = [record.message for record in caplog.records]
    assert events.count("directory_not_followed") == 1
    assert events.count("directory_followed_again") == 1
    assert len(server.seen) > tries


async def test_a_bookmark_confirms_the_state(server, follow, until):
    """The age is that of the knowledge, not of the last change."""
    following = await follow()
    await until(lambda: following.directory.age_seconds > 0.2)
    await server.bookmark()

    await until(lambda: following.directory.age_seconds < 0.2)


async def test_a_new_watch_confirms_the_state(server, follow, until, caplog):
    """An idle cluster sends nothing, not even bookmarks: neither an old directory nor a failure."""
    caplog.set_level("INFO")
    server.watch_seconds = 0.3
    following = await follow()
    ages = []

    def is_confirmed_again():
        ages.append(following.directory.age_seconds)
        return len(ages) > 1 and ages[-1] < ages[-2] and server.calls("watch") > 3

    await until(is_confirmed_again)
    assert max(ages) < 1.5
    assert server.calls("limit") == 1
    assert [record.message for record in caplog.records] == ["directory_loaded"]


async def test_faults_are_counted_and_named_once(server, follow, until, caplog):
    """Somebody has to look at them; nobody needs a line for each event."""
    await server.apply(resource())
    await server.apply(resource("globex", storageKey="x"))
    following = await follow()
    await server.apply(resource("platform", subjects=resource()["status"]["subjects"]))
    await until(lambda: following.directory.fault_count == 2)
    await server.apply(resource(documents=1))
    await server.apply(resource(conditions=[condition("Suspended")]))
    await until(lambda: following.state_of() == "corpus_suspended")

    events = [record.message for record in caplog.records]
    assert events.count("directory_unreadable_resources") == 1
    assert events.count("directory_contradictions") == 1
    assert following.reaches() == "t-acme"


async def test_the_watch_asks_for_what_keeps_it_alive(server, follow, until):
    """Bookmarks, and an end before a middlebox makes one."""
    await follow()
    await until(lambda: server.watch_count == 1)
    query = server.seen[-1][2]

    assert query["allowWatchBookmarks"] == "true"
    assert 30 <= int(query["timeoutSeconds"]) <= 60
    assert int(query["resourceVersion"]) == server.version


class HurriedClock(SystemClock):
    """Notes how long it was asked to sleep, and does not."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(("asked", "waited"), [("7", 7), ("600", 60)], ids=["believed", "too-long"])
async def test_a_server_that_asks_for_a_pause_gets_it(server, api, until, asked, waited):
    """429 comes from a server that has too much to do already."""
    server.status, server.headers = 429, {"Retry-After": asked}
    clock = HurriedClock()
    directory = KubernetesDirectory(api, clock=clock, rng=random.Random(1))
    task = asyncio.create_task(directory.run())
    await until(lambda: len(clock.slept) >= 3)
    task.cancel()

    assert set(clock.slept) == {waited}


@pytest.mark.parametrize("fault", ["failing", "ending"])
async def test_watches_that_end_at_once_are_asked_for_less_and_less(server, api, until, fault):
    """A server that takes each watch and holds none would otherwise be asked to list everything, again and again."""
    server.fails_watches = fault == "failing"
    server.watch_seconds = 0.001
    clock = HurriedClock()
    directory = KubernetesDirectory(api, clock=clock, rng=random.Random(1))
    task = asyncio.create_task(directory.run())
    await until(lambda: max(clock.slept, default=0) >= 2.5)
    task.cancel()

    assert server.calls("watch") < 15


async def test_fat_resources_do_not_stop_the_directory(server, follow, monkeypatch):
    """Whoever may create a TenantCorpus could otherwise keep every other tenant's changes away. All sizes here are a tenth."""
    monkeypatch.setattr("groundplane_router.kubernetes.client.MAX_ANSWER_BYTES", client.MAX_ANSWER_BYTES // 10)
    for number in range(25):
        uid = f"20000000-0000-4000-8000-{number:012}"
        metadata = {"uid": uid, "name": f"fat-{number}", "annotations": {"a": "x" * 150_000}}
        await server.apply(resource(metadata=metadata, incarnation=uid, storageKey=f"t-fat-{number}", subjects=[]))
    following = await follow()

    assert len(following.state.corpora) == 25


async def test_nothing_is_ever_written(server, follow, until):
    """The router may read TenantCorpora, no more."""
    await server.apply(resource())
    await follow()
    await server.apply(resource(documents=1))
    await until(lambda: server.watch_count == 1)

    assert {method for method, _, _ in server.seen} == {"GET"}


async def test_a_status_with_everything_is_smaller_in_memory_than_its_line(server, follow):
    """A spec of any size is not kept."""
    await server.apply(resource(spec={"podTemplate": {"annotations": {"a": "canary" * 10_000}}}))
    following = await follow()

    assert "canary" not in json.dumps([str(vars(one)) for one in following.directory._collections])
