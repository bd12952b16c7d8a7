"""A router over a real API server, also one that hangs, dies and comes back: who is known is served, nobody refused by mistake."""

import os
import signal
import uuid
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from e2e.cluster.control_plane import api_server, is_ready
from e2e.cluster.processes import record, start
from e2e.cluster.steps import wait_until
from groundplane.wire.names import Incarnation
from tests.fakes.cluster_router import ClusterRouter, corpus_status
from tests.support.control_plane import running_control_plane
from tests.support.corpora import condition
from tests.support.kubernetes_api import administrator, corpora
from tests.support.manifest_cases import manifest
from tests.support.service_accounts import READ_CORPORA, REVIEW_TOKENS, ServiceAccounts

API_SERVER = "kube-apiserver"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    """A control plane whose API server may be killed: no other test uses it."""
    with running_control_plane(tmp_path_factory.mktemp("outages") / "outage") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(own_cluster):
    with administrator(own_cluster) as calls:
        yield calls


class Operator:
    """Makes TenantCorpora for the shards of a router, and writes their status."""

    def __init__(self, admin, namespace, running):
        self.admin, self.namespace, self.running = admin, namespace, running

    def accept_all(self):
        for name, shard in self.running.shards.items():
            owner = {"platform": True} if name == "platform" else {"tenant": name}
            made = self.admin.create(corpora(self.namespace, ""), manifest(owner, name))
            shard.incarnation = Incarnation(made["metadata"]["uid"])

    def write(self, name, **fields):
        path = corpora(self.namespace, name)
        current = self.admin.get(path)
        uid = current["metadata"]["uid"]
        status = corpus_status(name, self.running.shards[name], uid=uid, **fields)
        for subject in status["subjects"]:
            subject["namespace"] = self.namespace
        self.admin.replace(f"{path}/status", current | {"status": status})


@pytest.fixture
async def scene(own_cluster, admin, tmp_path):
    """A running router, its accounts and its operator, in a namespace of their own."""
    async with running_scene(own_cluster, admin, tmp_path, cluster_rules=[REVIEW_TOKENS]) as running:
        yield running


@asynccontextmanager
async def running_scene(cluster, admin, directory, *, cluster_rules=(), **settings):
    namespace = f"outage-{uuid.uuid4().hex[:12]}"
    admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    accounts = ServiceAccounts(admin, cluster, namespace)
    accounts.create("router", rules=[READ_CORPORA], cluster_rules=cluster_rules)
    for name in ("acme-agent", "globex-agent", "stranger"):
        accounts.create(name)
    home = directory / "router"
    home.mkdir()
    running = ClusterRouter(home, accounts.mount("router", directory / "mounted"), namespaces=namespace, **settings)
    operator = Operator(admin, namespace, running)
    operator.accept_all()
    async with running:
        for name in running.shards:
            operator.write(name)
        await running.until(lambda: _answers(running, accounts.token("acme-agent")))
        yield running, accounts, operator


async def _answers(running, token):
    return (await running.ask(token)).status_code == 200


@contextmanager
def hanging(cluster):
    """Stop the API server in the middle of whatever it does, without closing a connection."""
    pid = record(cluster.directory, API_SERVER).pid
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_stopped(pid), what="every thread has stopped", limit_seconds=10, explain=lambda: "no")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid):
    """Whether each thread of a process stands still (state T, after the name in parentheses)."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


@contextmanager
def killed(cluster):
    """Kill the API server, and start it again afterwards."""
    os.kill(record(cluster.directory, API_SERVER).pid, signal.SIGKILL)
    try:
        yield
    finally:
        start(cluster, api_server(cluster))
        wait_until(lambda: is_ready(cluster), what="the API server is back", limit_seconds=60, explain=lambda: "no")


@pytest.mark.parametrize(
    ("outage", "details"),
    [
        pytest.param(hanging, {"timeout", "api_timeout"}, id="hangs"),
        pytest.param(killed, {"api_unreachable"}, id="killed"),
    ],
)
async def test_grounding_goes_on_without_a_control_plane(own_cluster, scene, outage, details):
    """Known callers are answered, unknown ones get 503 in time and never 401; afterwards everything is as before."""
    running, accounts, operator = scene
    known, unknown = accounts.token("acme-agent"), accounts.token("globex-agent")
    assert (await running.ask(known)).status_code == 200
    with outage(own_cluster):
        refused = await running.ask(unknown)
        assert (refused.status_code, refused.json()["code"]) == (503, "identity_unavailable")
        assert refused.json()["unavailable_detail"] in details
        assert (await running.ask(known)).status_code == 200
        assert await running.is_ready()

    await running.until(lambda: _answers(running, unknown), seconds=30)
    operator.write("acme", conditions=[condition("Suspended")])

    async def is_suspended():
        answer = await running.ask(known)
        return answer.status_code == 503 and answer.json()["unavailable_detail"] == "corpus_suspended"

    await running.until(is_suspended, seconds=30)


async def test_each_account_is_answered_from_its_own_corpus(scene):
    """Real tokens, real reviews, real resources: nothing of another tenant's is searched."""
    running, accounts, _ = scene
    for shard in running.shards.values():
        shard.seen.clear()
    answer = await running.ask(accounts.token("globex-agent"))
    stranger = await running.ask(accounts.token("stranger"))

    assert (answer.status_code, stranger.status_code) == (200, 403)
    assert {name for name, shard in running.shards.items() if "/search" in shard.paths()} == {"globex", "platform"}


async def test_rights_in_one_namespace_are_enough_with_published_keys(own_cluster, admin, tmp_path):
    """An installation that may have no cluster-wide right at all, not even to review tokens."""
    async with running_scene(own_cluster, admin, tmp_path, identity="jwks") as (running, accounts, _):
        answers = [await running.ask(accounts.token(name)) for name in ("acme-agent", "stranger")]
        foreign = await running.ask(accounts.token("acme-agent", "other"))

    assert [answer.status_code for answer in (*answers, foreign)] == [200, 403, 401]
