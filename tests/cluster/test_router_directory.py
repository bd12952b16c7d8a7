"""The router's directory against a real API server: real lists, watches, bookmarks and rights."""

import asyncio
import contextlib
import random
import uuid
from contextlib import aclosing

import pytest

from groundplane.process.clock import SystemClock
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.directory import ALL_NAMESPACES, KubernetesDirectory
from groundplane_router.kubernetes.failures import ResourceExpired
from groundplane_router.kubernetes.list_watch import collection_path, parse_event
from tests.support.corpora import condition
from tests.support.kubernetes_api import administrator, corpora
from tests.support.manifest_cases import manifest
from tests.support.service_accounts import READ_CORPORA, ServiceAccounts

FOLLOWED_SECONDS = 2.0


class Namespace:
    """A namespace with TenantCorpora, and an operator that is this test."""

    def __init__(self, admin, cluster):
        self.admin = admin
        self.name = f"corpora-{uuid.uuid4().hex[:12]}"
        admin.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        self.accounts = ServiceAccounts(admin, cluster, self.name)

    def create(self, name, *, finalizers=()):
        made = manifest({"tenant": f"{self.name}-{name}"}, name)
        made["metadata"]["finalizers"] = list(finalizers)
        return self.admin.create(corpora(self.name), made)

    def accept(self, made, **fields):
        """Write the status of an accepted corpus that is ready."""
        metadata = made["metadata"]
        status = {
            "storageKey": f"t-{metadata['name']}-{self.name[-12:]}",
            "incarnation": metadata["uid"],
            "endpoint": f"http://corpus-{metadata['name']}.{self.name}.svc:8081",
            "conditions": [condition("Ready")],
            "subjects": [{"namespace": self.name, "serviceAccount": metadata["name"], "access": ["read"]}],
        }
        return self._write(made, status | fields)

    def _write(self, made, status):
        path = f"{corpora(self.name, made['metadata']['name'])}/status"
        current = self.admin.get(path)
        return self.admin.replace(path, current | {"status": status})

    def delete(self, name):
        self.admin.delete(corpora(self.name, name))

    def release(self, name):
        """Let a resource go that has a finalizer."""
        current = self.admin.get(corpora(self.name, name))
        current["metadata"]["finalizers"] = []
        self.admin.replace(corpora(self.name, name), current)


@pytest.fixture(scope="module")
def admin(control_plane):
    with administrator(control_plane) as calls:
        yield calls


@pytest.fixture
def home(admin, control_plane):
    return Namespace(admin, control_plane)


@pytest.fixture
async def follow(tmp_path):
    async with contextlib.AsyncExitStack() as stack:

        async def start(access, *namespaces):
            api = await stack.enter_async_context(ApiServer(access, SystemClock()))
            directory = KubernetesDirectory(
                api, namespaces or ALL_NAMESPACES, clock=SystemClock(), rng=random.Random(1)
            )
            task = asyncio.create_task(directory.run())
            stack.callback(task.cancel)
            return directory

        yield start


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.01)


def state_in(directory, home, name):
    found = [corpus.state for corpus in directory.state.corpora if corpus.name == f"{home.name}/{name}"]
    return found[0] if found else None


async def watched(access, home, version, *, seconds):
    """Return the events of one watch, until the server ends it."""
    async with (
        ApiServer(access, SystemClock()) as api,
        aclosing(api.watch(collection_path(home.name), version, seconds)) as batches,
    ):
        return [parse_event(line) async for batch in batches for line in batch]


async def test_creation_acceptance_change_and_deletion_are_followed(home, follow, tmp_path):
    """Each within two seconds of the moment at which the API server had it."""
    home.accounts.create("router", rules=[READ_CORPORA])
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: directory.is_loaded)
    made = home.create("acme")
    assert state_in(directory, home, "acme") is None

    home.accept(made)
    await until(lambda: state_in(directory, home, "acme") == "ready", FOLLOWED_SECONDS)
    assert directory.state.grants_of(f"system:serviceaccount:{home.name}:acme").access == {"read"}
    home.accept(made, conditions=[condition("Ready", "False"), condition("Suspended")])
    await until(lambda: state_in(directory, home, "acme") == "corpus_suspended", FOLLOWED_SECONDS)
    home.delete("acme")
    await until(lambda: state_in(directory, home, "acme") is None, FOLLOWED_SECONDS)


async def test_an_edit_of_the_spec_changes_nothing(home, follow, tmp_path, admin):
    """Grants are what the operator accepted."""
    home.accounts.create("router", rules=[READ_CORPORA])
    made = home.create("acme")
    home.accept(made)
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: state_in(directory, home, "acme") == "ready")
    current = admin.get(corpora(home.name, "acme"))
    current["spec"]["subjects"] = [{"namespace": home.name, "serviceAccount": "thief", "access": ["read", "write"]}]
    admin.replace(corpora(home.name, "acme"), current)
    home.accept(home.create("later"))
    await until(lambda: state_in(directory, home, "later") == "ready", FOLLOWED_SECONDS)

    assert directory.state.grants_of(f"system:serviceaccount:{home.name}:thief") is None
    assert directory.state.grants_of(f"system:serviceaccount:{home.name}:acme") is not None


async def test_a_corpus_that_waits_for_its_finalizer_is_no_longer_declared(home, follow, tmp_path):
    """It may take minutes until its data is gone, and nobody is to read them meanwhile."""
    home.accounts.create("router", rules=[READ_CORPORA])
    home.accept(home.create("acme", finalizers=["groundplane.dev/cleanup"]))
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: state_in(directory, home, "acme") == "ready")
    home.delete("acme")

    await until(lambda: state_in(directory, home, "acme") is None, FOLLOWED_SECONDS)
    home.release("acme")


async def test_a_corpus_created_again_is_another_one(home, follow, tmp_path):
    """Same name, same tenant, another uid: nothing of the old one counts."""
    home.accounts.create("router", rules=[READ_CORPORA])
    old = home.create("acme")
    home.accept(old)
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: state_in(directory, home, "acme") == "ready")
    home.delete("acme")
    new = home.create("acme")
    home.accept(new)

    await until(lambda: [one.incarnation for one in directory.state.corpora] == [new["metadata"]["uid"]])


async def test_a_copied_status_grants_nothing(home, follow, tmp_path):
    """As a backup that is restored with its status would have it."""
    home.accounts.create("router", rules=[READ_CORPORA])
    old = home.create("acme")
    home.accept(home.create("other"), incarnation=old["metadata"]["uid"])
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: directory.is_loaded)

    assert directory.state.corpora == ()
    assert directory.fault_count == 1


async def test_pages_of_a_list_are_put_together(home, follow, tmp_path, monkeypatch):
    """The server's own tokens for the next page."""
    monkeypatch.setattr("groundplane_router.kubernetes.list_watch.PAGE_SIZE", 2)
    home.accounts.create("router", rules=[READ_CORPORA])
    names = [f"corpus-{number}" for number in range(5)]
    for name in names:
        home.accept(home.create(name))
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await until(lambda: directory.is_loaded)

    assert [state_in(directory, home, name) for name in names] == ["ready"] * 5


async def test_all_namespaces_need_a_right_in_all_of_them(home, follow, tmp_path, caplog):
    """Without it the router is not ready, and says so; it does not serve the part that it may see."""
    home.accounts.create("small", rules=[READ_CORPORA])
    home.accounts.create("large", cluster_rules=[READ_CORPORA])
    home.accept(home.create("acme"))
    small = await follow(home.accounts.mount("small", tmp_path / "small"))
    large = await follow(home.accounts.mount("large", tmp_path / "large"))
    await until(lambda: state_in(large, home, "acme") == "ready")
    await until(lambda: "directory_not_followed" in caplog.text)

    assert not small.is_loaded


async def test_a_right_that_comes_later_is_enough(home, follow, tmp_path, admin):
    """Roles and router are applied in any order."""
    home.accounts.create("router")
    directory = await follow(home.accounts.mount("router", tmp_path / "mounted"), home.name)
    await asyncio.sleep(0)
    home.accounts._bind(
        "router", "Role", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{home.name}",
        {"kind": "ServiceAccount", "name": "router", "namespace": home.name}, [READ_CORPORA],
    )  # fmt: skip

    await until(lambda: directory.is_loaded)


async def test_an_old_version_is_told_apart(home, tmp_path):
    """What the server answers to a watch from a version that it has forgotten."""
    home.accounts.create("router", rules=[READ_CORPORA])
    access = home.accounts.mount("router", tmp_path / "mounted")
    home.create("acme")
    with pytest.raises(ResourceExpired):
        await watched(access, home, "1", seconds=5)


async def test_a_quiet_watch_is_ended_in_time_and_says_nothing(home, tmp_path):
    """So silence is no sign of a broken watch, and the end of a good one is in our hands."""
    home.accounts.create("router", rules=[READ_CORPORA])
    access = home.accounts.mount("router", tmp_path / "mounted")
    version = home.create("acme")["metadata"]["resourceVersion"]

    assert await watched(access, home, version, seconds=3) == []
