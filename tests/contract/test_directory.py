"""One suite over both directories: the same corpora, written as a file or as TenantCorpora, give the same state."""

import asyncio
import contextlib
import json
import random

import msgspec
import pytest

from groundplane.process.clock import SystemClock
from groundplane.wire.directory import CorpusEntry, Directory, Grant, Subject
from groundplane.wire.names import PLATFORM_KEY, Incarnation, corpus_key
from groundplane_router.directory import DirectoryFile
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.directory import KubernetesDirectory
from tests.fakes.api_server import FakeApiServer
from tests.support.corpora import condition

LONG = "Ünïcode / tenant:1"


class Corpus(msgspec.Struct, frozen=True):
    """A corpus, before anybody has written it down."""

    name: str
    tenant: str
    number: int
    subjects: dict[str, tuple[str, ...]] = {}
    state: str = "ready"
    endpoint: str | None = "http://shard:8081"

    @property
    def incarnation(self):
        return f"{self.number}0000000-0000-4000-8000-000000000000"


class FileBackend:
    """Writes the directory file."""

    def __init__(self, path):
        self.path = path / "directory.json"
        self.directory = DirectoryFile(self.path, SystemClock())

    async def write(self, corpora):
        entries = tuple(_entry(corpus) for corpus in corpora)
        partial = self.path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(Directory(corpora=entries)))
        partial.rename(self.path)


class KubernetesBackend:
    """Applies and deletes TenantCorpora."""

    def __init__(self, server, api):
        self.server = server
        self.directory = KubernetesDirectory(api, clock=SystemClock(), rng=random.Random(1))

    async def write(self, corpora):
        for corpus in corpora:
            await self.server.apply(_resource(corpus))
        for namespace, name in set(self.server.objects) - {("corpora", corpus.name) for corpus in corpora}:
            await self.server.delete(namespace, name)


def _entry(corpus):
    return CorpusEntry(
        key=corpus_key(corpus.tenant),
        name=f"corpora/{corpus.name}",
        tenant=None,
        incarnation=Incarnation(corpus.incarnation),
        endpoint=corpus.endpoint,
        state=corpus.state,
        grants=tuple(
            Grant(subject=Subject(namespace="agents", service_account=name), access=access)
            for name, access in corpus.subjects.items()
        ),
    )


def _resource(corpus):
    is_ready, is_suspended = (str(corpus.state == state) for state in ("ready", "corpus_suspended"))
    status = {
        "storageKey": corpus_key(corpus.tenant),
        "incarnation": corpus.incarnation,
        "endpoint": corpus.endpoint,
        "subjects": [
            {"namespace": "agents", "serviceAccount": name, "access": access}
            for name, access in corpus.subjects.items()
        ],
        "conditions": [condition("Ready", is_ready), condition("Suspended", is_suspended)],
    }
    metadata = {"name": corpus.name, "namespace": "corpora", "uid": corpus.incarnation}
    return json.loads(json.dumps({"metadata": metadata, "spec": {"tenant": "not read"}, "status": status}))


@pytest.fixture(params=["file", "kubernetes"])
async def backend(request, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        made: FileBackend | KubernetesBackend
        if request.param == "file":
            made = FileBackend(tmp_path)
            await made.write([])
        else:
            server = FakeApiServer(tmp_path)
            await server.start()
            stack.push_async_callback(server.stop)
            made = KubernetesBackend(server, await stack.enter_async_context(ApiServer(server.access, SystemClock())))
        task = asyncio.create_task(made.directory.run())
        stack.callback(task.cancel)
        yield made


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.01)


PLATFORM = Corpus("platform", "", 1, {"librarian": ("read", "write")})
ACME = Corpus("acme", "acme", 2, {"agent": ("read", "write"), "reader": ("read",)})
HASHED = Corpus("odd", LONG, 3, {"odd-agent": ("read",)})
SUSPENDED = Corpus("idle", "idle", 4, {"idle-agent": ("read",)}, "corpus_suspended", None)
CASES = {
    "none": [],
    "one": [ACME],
    "tenant-and-platform": [ACME, PLATFORM],
    "hashed-tenant": [HASHED, PLATFORM],
    "suspended": [SUSPENDED, PLATFORM],
    "nobody-may-use-it": [Corpus("acme", "acme", 2)],
    "all": [ACME, HASHED, SUSPENDED, PLATFORM],
}
NAMES = ["librarian", "agent", "reader", "odd-agent", "idle-agent", "stranger"]


def reach_of(state):
    """What each subject reaches: the whole of what the router takes from a directory."""
    return {name: state.grants_of(f"system:serviceaccount:agents:{name}") for name in NAMES}


@pytest.mark.parametrize("corpora", CASES.values(), ids=CASES)
async def test_equal_corpora_give_equal_states(backend, corpora):
    """A tenant that moves from one machine to a cluster reaches the same, and no more."""
    await backend.write(corpora)
    wanted = sorted((_entry(corpus) for corpus in corpora), key=lambda entry: entry.key)
    await until(lambda: backend.directory.is_loaded and len(backend.directory.state.corpora) == len(wanted))
    state = backend.directory.state

    assert sorted(state.corpora, key=lambda entry: entry.key) == wanted
    assert {name: reach and reach.own.key for name, reach in reach_of(state).items()} == {
        name: next((corpus_key(corpus.tenant) for corpus in corpora if name in corpus.subjects), None) for name in NAMES
    }
    assert state.platform == next((entry for entry in wanted if entry.key == PLATFORM_KEY), None)


async def test_a_change_is_in_force_within_two_seconds(backend):
    """Grants are given and taken while callers are waiting."""
    await backend.write([ACME, PLATFORM])
    await until(lambda: backend.directory.is_loaded and reach_of(backend.directory.state)["agent"] is not None)
    await backend.write([msgspec.structs.replace(ACME, subjects={}), PLATFORM])

    await until(lambda: reach_of(backend.directory.state)["agent"] is None, seconds=2)


async def test_a_contradiction_takes_nothing_from_whom_it_was(backend):
    """The state before stays in force, and is counted as faulty."""
    await backend.write([ACME])
    await until(lambda: backend.directory.is_loaded and reach_of(backend.directory.state)["agent"] is not None)
    await backend.write([ACME, msgspec.structs.replace(HASHED, subjects={"agent": ("read",)})])
    await until(lambda: backend.directory.fault_count == 1)

    assert reach_of(backend.directory.state)["agent"].own.key == "t-acme"


async def test_a_state_is_confirmed_while_its_source_is_there(backend):
    """An age that grows means that nobody would see a change."""
    await backend.write([ACME])
    await until(lambda: backend.directory.is_loaded)

    assert 0 <= backend.directory.age_seconds < 2
