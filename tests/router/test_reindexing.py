"""Re-embedding through the router: by calls that may end anywhere, honest meanwhile, and finished all at once."""

import pytest

from groundplane.wire.internal import ReplaceDocument
from groundplane_router import reindexing
from tests.fakes.embedder import NOTHING, WordEmbedder

TEXTS = {"pump": "pump pressure limits", "invoice": "invoice due dates", "valve": "valve opens slowly"}


@pytest.fixture
async def changed(installation):
    """Return an installation whose corpus was indexed with another model than its router has now."""
    await installation.index(**TEXTS)
    installation.embedder = WordEmbedder(salt="another model")
    await installation.start_router()
    return installation


async def advance(running, subject="acme-agent", **body):
    answer = await running.post("/v1/corpus/reindex", body, subject)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def begun(running, monkeypatch):
    """Begin a re-embedding, one document a call, and return after the first."""
    running.shards["acme"].pending_page = 1
    monkeypatch.setattr(reindexing, "WORK_SECONDS", 0.0)
    return await advance(running)


async def test_documents_are_refused_and_meaning_is_off_before_it(changed):
    """Vectors of two models never meet; who asks learns which corpus is concerned, and why."""
    refused = await changed.post("/v1/documents", {"documents": [{"id": "new", "text": "text"}]})
    asked = await changed.evidence("pump pressure")
    report = (await changed.get("/v1/corpus")).json()["corpus"]

    assert (refused.status_code, refused.json()["unavailable_detail"]) == (503, "embedding_mismatch")
    assert (asked.status_code, asked.json()["unavailable_detail"]) == (503, "embedding_mismatch")
    assert (report["semantic"], report["detail"], report["reindexed_documents"]) == (False, "embedding_mismatch", None)


async def test_one_call_is_enough_for_a_small_corpus(changed):
    """Afterwards the corpus answers by meaning and takes documents, without a restart."""
    done = await advance(changed)
    answer = await changed.evidence("pump pressure")
    await changed.index(new="a new text")

    assert (done["state"], done["documents"], done["total_documents"], done["cursor"]) == ("finished", 3, 3, None)
    assert answer.json()["semantic"]
    assert answer.json()["hits"][0]["match"] == "both"


async def test_meanwhile_words_answer_and_say_so(changed, monkeypatch):
    """A keyword match is no semantic answer, and an empty one would pretend that meaning was asked."""
    progress = await begun(changed, monkeypatch)
    hit, nothing = await changed.evidence("pump pressure"), await changed.evidence("unheard words")
    grounded, degraded = await changed.ground("pump pressure"), await changed.ground("unheard words")
    report = (await changed.get("/v1/corpus")).json()["corpus"]

    assert (progress["state"], progress["documents"]) == ("running", 1)
    assert (hit.json()["semantic"], [each["match"] for each in hit.json()["hits"]]) == (False, ["keyword"])
    assert (nothing.status_code, nothing.json()["unavailable_detail"]) == (503, "reindexing")
    assert (grounded.json()["status"], grounded.json()["semantic"]) == ("grounded", False)
    assert (degraded.json()["status"], degraded.json()["unavailable"]["detail"]) == ("degraded", "reindexing")
    assert (report["detail"], report["reindexed_documents"], report["documents"]) == ("reindexing", 1, 3)


async def test_meanwhile_the_platform_is_asked_by_words_too(changed, monkeypatch):
    """Which of two shards a document lives in must not change the ranking, so no score of meaning stands on one side only."""
    await changed.index("platform-agent", shared="pump pressure in general")
    await begun(changed, monkeypatch)
    answer = (await changed.evidence("pump pressure")).json()

    assert {each["scope"] for each in answer["hits"]} == {"tenant", "platform"}
    assert {each["scores"]["dense"] for each in answer["hits"]} == {None}


async def test_meanwhile_documents_are_told_to_come_later(changed, monkeypatch):
    """A refusal without an end would look like a fault."""
    await begun(changed, monkeypatch)
    refused = await changed.post("/v1/documents", {"documents": [{"id": "new", "text": "text"}]})

    assert (refused.status_code, refused.json()["unavailable_detail"]) == (503, "reindexing")
    assert int(refused.headers["Retry-After"]) > 1


async def test_it_goes_on_where_another_router_died(changed, monkeypatch):
    """Nothing of it is kept in a router: the shard knows what is done, and nothing is embedded twice."""
    await begun(changed, monkeypatch)
    monkeypatch.undo()
    changed.embedder = WordEmbedder(salt="another model")
    await changed.start_router()
    embedded = len(changed.shards["acme"].seen)
    done = await advance(changed)
    written = [
        operation.doc_id
        for _, path, request in changed.shards["acme"].seen[embedded:]
        if path == "/write"
        for operation in request.operations
        if isinstance(operation, ReplaceDocument)
    ]

    assert done["state"] == "finished"
    assert sorted(written) == ["pump", "valve"]


async def test_a_deleted_document_stays_deleted(changed, monkeypatch):
    """Its text may have been read before it was deleted: only the shard can tell, and it does."""
    await begun(changed, monkeypatch)
    pending = changed.shards["acme"]._pending
    documents = changed.shards["acme"].documents

    def deleting(after):
        page = pending(after)
        documents.pop("valve", None)
        return page

    monkeypatch.setattr(changed.shards["acme"], "_pending", deleting)
    monkeypatch.setattr(reindexing, "WORK_SECONDS", 60.0)
    done = await advance(changed)

    assert (done["state"], done["documents"]) == ("finished", 2)
    assert (await changed.get("/v1/documents/valve")).status_code == 404


async def test_a_document_without_a_vector_holds_the_switch_back(installation):
    """Left out silently it would be lost."""
    await installation.index(**TEXTS, odd="odd")
    installation.embedder = WordEmbedder(salt="another model")
    installation.embedder._vector = odd_is_zero(installation.embedder)
    await installation.start_router()
    held = await advance(installation)
    await installation.http.delete("/v1/documents/odd", headers=installation.headers())
    done = await advance(installation)

    assert (held["state"], held["failed"][0]["id"], held["failed"][0]["reason"]) == ("incomplete", "odd", "zero_vector")
    assert (held["documents"], held["total_documents"]) == (3, 4)
    assert done["state"] == "finished"


def odd_is_zero(embedder):
    vector = WordEmbedder(salt=embedder.salt)._vector
    return lambda text: vector(NOTHING if text == "odd" else text)


async def test_abandoning_brings_the_old_model_back_at_once(changed, monkeypatch):
    """Who finds the new model worse must not have to wait for a second re-embedding."""
    await begun(changed, monkeypatch)
    abandoned = await advance(changed, abandon=True)
    changed.embedder = WordEmbedder()
    await changed.start_router()

    assert (abandoned["state"], abandoned["documents"]) == ("abandoned", 3)
    assert (await changed.evidence("pump pressure")).json()["semantic"]


async def test_a_third_model_does_not_displace_an_unfinished_one(changed, monkeypatch):
    """Two routers with two models would begin anew for ever."""
    await begun(changed, monkeypatch)
    changed.embedder = WordEmbedder(salt="a third model")
    await changed.start_router()
    refused = await changed.post("/v1/corpus/reindex", {})
    asked = await changed.evidence("pump pressure")

    assert (refused.status_code, refused.json()["unavailable_detail"]) == (503, "reindex_conflict")
    assert (asked.status_code, asked.json()["unavailable_detail"]) == (503, "embedding_mismatch")


async def test_a_router_with_the_old_model_answers_by_meaning_until_the_switch(changed, monkeypatch):
    """A rolling change of routers loses nothing while the new ones re-embed."""
    await begun(changed, monkeypatch)
    changed.embedder = WordEmbedder()
    await changed.start_router()

    assert (await changed.evidence("pump pressure")).json()["semantic"]


async def test_a_corpus_that_fits_is_left_alone(installation):
    """The command may be run at any time."""
    await installation.index(**TEXTS)
    before = installation.shards["acme"].sequence
    done = await advance(installation)

    assert (done["state"], installation.shards["acme"].sequence) == ("finished", before)


async def test_a_reader_may_not(changed):
    """It takes the corpus out of semantic search for a while."""
    answer = await changed.post("/v1/corpus/reindex", {}, "acme-reader")

    assert answer.status_code == 403


async def test_a_caller_reaches_its_own_corpus_only(changed):
    """The platform's corpus is re-embedded by a subject of the platform."""
    await advance(changed)

    assert "/pending" not in changed.shards["platform"].paths()
    assert "/pending" not in changed.shards["globex"].paths()
