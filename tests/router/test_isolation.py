"""Nothing but the token chooses a corpus, and no answer crosses from one tenant into another."""

import pytest

from groundplane.wire.names import corpus_key


@pytest.fixture
async def filled(installation):
    await installation.index("acme-agent", secret="acme sells anvils to coyotes")
    await installation.index("globex-agent", secret="globex builds reactors for cities")
    await installation.index("platform-agent", handbook="holiday rules for everyone")
    for shard in installation.shards.values():
        shard.seen.clear()
    return installation


SPOOFED_HEADERS = [
    {"X-Tenant": "globex"},
    {"X-Tenant-Id": "globex"},
    {"X-Scope-OrgID": "globex"},
    {"X-Forwarded-User": "system:serviceaccount:agents:globex-agent"},
    {"Impersonate-User": "system:serviceaccount:agents:globex-agent"},
    {"Cookie": "tenant=globex"},
]


@pytest.mark.parametrize("spoofed", SPOOFED_HEADERS, ids=lambda one: next(iter(one)))
async def test_no_header_chooses_the_corpus(filled, spoofed):
    """The most reported hole of such systems: a verified token, and then a header that is believed."""
    headers = filled.headers() | spoofed
    answer = await filled.http.post(
        "/v1/evidence", json={"query": "globex builds reactors for cities"}, headers=headers
    )

    assert all("reactors" not in hit["text"] for hit in answer.json()["hits"])
    assert filled.shards["globex"].seen == []


@pytest.mark.parametrize("path", ["/v1/evidence", "/v1/ground"])
@pytest.mark.parametrize("field", ["tenant", "tenant_id", "corpus", "corpus_key", "scope", "incarnation", "namespace"])
async def test_no_body_field_chooses_the_corpus(filled, path, field):
    """A field that is ignored would be believed by whoever sends it."""
    answer = await filled.post(path, {"query": "x", field: "globex"})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_body")
    assert all(shard.seen == [] for shard in filled.shards.values())


@pytest.mark.parametrize(
    "path", ["/v1/evidence?tenant=globex", "/v1/documents?tenant=globex", "/v1/corpus?corpus=globex"]
)
async def test_no_query_parameter_chooses_the_corpus(filled, path):
    """As for the body: refused, not ignored."""
    send = filled.post(path, {"query": "x"}) if "evidence" in path else filled.get(path)
    answer = await send

    assert answer.status_code == 400
    assert all(shard.seen == [] for shard in filled.shards.values())


async def test_a_filter_that_names_a_tenant_goes_to_the_own_shards_alone(filled):
    """A filter narrows; it never widens."""
    wanted = {"op": "eq", "key": "tenant", "value": "globex"}
    answer = await filled.evidence("reactors", filter=wanted)

    assert answer.status_code == 200
    assert filled.shards["globex"].seen == []


async def test_a_tenant_in_metadata_is_dropped(filled):
    """No document says whose it is."""
    document = {"id": "m", "text": "metadata", "metadata": {"tenant": "globex", "trade": "anvils"}}
    await filled.post("/v1/documents", {"documents": [document]})

    stored = await filled.get("/v1/documents/m")
    assert stored.json()["metadata"] == {"trade": "anvils"}
    assert filled.shards["globex"].seen == []


async def test_a_question_touches_the_own_and_the_platform_shard_only(filled):
    """Isolation is structural: the other shard is never even asked."""
    await filled.evidence("anything at all")
    await filled.ground("anything at all", name="n", fingerprint="f")

    assert filled.shards["globex"].seen == []
    assert set(filled.shards["platform"].paths()) <= {"/search", "/status"}


async def test_a_platform_subject_reads_the_platform_corpus_alone(filled):
    """The platform team is no back door into its tenants."""
    answer = (await filled.evidence("holiday rules", "platform-agent")).json()

    assert [hit["scope"] for hit in answer["hits"]] == ["platform"]
    assert answer["searched"]["tenant"] is None
    assert filled.shards["acme"].seen == filled.shards["globex"].seen == []


async def test_the_same_document_id_belongs_to_each_tenant_apart(filled):
    """Ids are names inside a corpus, not across."""
    acme = await filled.get("/v1/documents/secret", "acme-agent")
    globex = await filled.get("/v1/documents/secret", "globex-agent")
    platform = await filled.get("/v1/documents/secret", "platform-agent")

    assert "anvils" in acme.json()["text"]
    assert "reactors" in globex.json()["text"]
    assert platform.status_code == 404


async def test_a_memo_is_never_anothers(filled):
    """A memo is the shortest way to an answer, so also to a leak."""
    memo = {"response": {"answer": 42}}
    await filled.http.put("/v1/memos/n/f", json=memo, headers=filled.headers("acme-agent"))

    assert (await filled.ground("x", "acme-agent", name="n", fingerprint="f")).json()["tier"] == "memo"
    assert (await filled.ground("x", "globex-agent", name="n", fingerprint="f")).json()["tier"] != "memo"


async def test_a_query_vector_is_not_shared_between_tenants(filled):
    """The time an answer takes must not tell what others asked."""
    await filled.evidence("a question nobody asked before", "acme-agent")
    calls = filled.embedder.calls
    await filled.evidence("a question nobody asked before", "acme-agent")
    assert filled.embedder.calls == calls

    await filled.evidence("a question nobody asked before", "globex-agent")
    assert filled.embedder.calls == calls + 1


@pytest.mark.parametrize("tenant", ["../x", "A", "a", "x" * 300, "Ünïcode", "platform", ".", "a/b", "tenant'; DROP"])
def test_an_odd_tenant_id_has_a_key_of_its_own(tenant):
    """An id that cannot be a path component is hashed into its own index, never into a shared one."""
    others = {"../x", "A", "a", "x" * 300, "Ünïcode", "platform", ".", "a/b", "tenant'; DROP", ""} - {tenant}

    key = corpus_key(tenant)
    assert key not in {corpus_key(other) for other in others}
    assert "/" not in key
    assert ".." not in key
