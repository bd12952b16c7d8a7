"""Documents go in whole or not at all, come back as they were, and only the named one goes."""

import asyncio

import pytest

from groundplane.wire.names import parse_position
from groundplane_router import preparation
from groundplane_router.documents import format_cursor, parse_cursor
from tests.fakes.installation import INCARNATIONS
from tests.fakes.shard_server import ShardFault


async def index(running, *documents):
    return await running.post("/v1/documents", {"documents": list(documents)})


def doc(doc_id="a", text="some text about pumps", **more):
    return {"id": doc_id, "text": text, **more}


async def test_a_document_comes_back_as_it_went_in(installation):
    """Round trip, odd characters included."""
    given = doc(
        "päth/to 100%?#.md",
        "# Heading\n\nbody \x00 with NUL, quotes ' \" and \U0001f600",
        title='T "quoted"',
        uri="https://example.org/?a=b#c",
        metadata={"nested": {"list": [1, 2.5, None, True, "x"]}, "n": 3},
    )
    assert (await index(installation, given)).json()["results"][0]["outcome"] == "indexed"
    stored = (await installation.get("/v1/documents/p%C3%A4th/to%20100%25%3F%23.md")).json()

    assert {name: stored[name] for name in given} == given


async def test_the_position_holds_the_whole_batch(installation, monkeypatch):
    """A caller waits for one position, however many writes it took."""
    monkeypatch.setattr(preparation, "CHUNKS_PER_WRITE", 2)
    answer = (await index(installation, *(doc(f"d{number}", f"text {number}") for number in range(5)))).json()

    writes = [message for _, path, message in installation.shards["acme"].seen if path == "/write"]
    assert [len(one.operations) for one in writes if one.embedding_id][-3:] == [2, 2, 1]
    assert parse_position(answer["position"]) == (INCARNATIONS["acme"], installation.shards["acme"].sequence)
    assert [one["id"] for one in answer["results"]] == [f"d{number}" for number in range(5)]


async def test_repeating_a_batch_is_unchanged(installation):
    """Idempotent: a lost answer is repeated as it is."""
    first = (await index(installation, doc())).json()
    second = (await index(installation, doc())).json()

    assert (first["results"][0]["outcome"], second["results"][0]["outcome"]) == ("indexed", "unchanged")
    assert first["position"] == second["position"]


async def test_the_order_of_metadata_keys_is_no_change(installation):
    """A client that rebuilds its dictionaries must not rewrite its corpus."""
    await index(installation, doc(metadata={"a": 1, "b": {"c": 2, "d": 3}}))
    answer = await index(installation, doc(metadata={"b": {"d": 3, "c": 2}, "a": 1}))

    assert answer.json()["results"][0]["outcome"] == "unchanged"


async def test_an_empty_text_is_skipped_and_named(installation):
    """It has nothing to be found by; the others of its batch do."""
    results = (await index(installation, doc("blank", " \n\t"), doc("empty", ""), doc())).json()["results"]

    assert [(one["id"], one["outcome"], one["reason"]) for one in results] == [
        ("blank", "skipped", "empty_text"),
        ("empty", "skipped", "empty_text"),
        ("a", "indexed", None),
    ]


async def test_a_zero_vector_is_skipped_and_named(installation):
    """It would be near nothing, or near everything."""
    results = (await index(installation, doc("z", "zerovector"), doc())).json()["results"]

    assert [(one["id"], one["outcome"], one["reason"]) for one in results] == [
        ("z", "skipped", "zero_vector"),
        ("a", "indexed", None),
    ]
    assert "z" not in installation.shards["acme"].documents


async def test_a_batch_of_skipped_documents_has_a_position_too(installation):
    """The answer always has one; a caller need not know why nothing was written."""
    await index(installation, doc())
    answer = (await index(installation, doc("empty", ""))).json()

    assert parse_position(answer["position"])[1] == 1


@pytest.mark.parametrize("before", [True, False], ids=["corpus-with-documents", "empty-corpus"])
async def test_a_wrong_size_drops_every_document_and_reports_one_fault(installation, before, caplog):
    """The configuration is at fault, once, not each document."""
    if before:
        await index(installation, doc("first"))
    installation.embedder.dimension = 128
    answer = await index(installation, doc("b"), doc("c", ""))
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (422, "dimension_mismatch")
    assert problem["unavailable_detail"] == "got_128_expected_256"
    assert [(one["id"], one["outcome"]) for one in problem["results"]] == [("b", "dropped"), ("c", "dropped")]
    assert [record.message for record in caplog.records].count("documents_dropped") == 1
    assert set(installation.shards["acme"].documents) == ({"first"} if before else set())


async def test_the_first_write_introduces_the_embedding(installation):
    """MANIFEST fixes it; a shard that has it is not sent it again."""
    await index(installation, doc("a"))
    await index(installation, doc("b"))

    writes = [message for _, path, message in installation.shards["acme"].seen if path == "/write"]
    assert [one.embedding is not None for one in writes] == [False, True, False]
    assert installation.shards["acme"].embedding.id == writes[-1].embedding_id


async def test_documents_of_another_embedding_are_refused(installation):
    """Vectors of two models in one index find each other by chance."""
    await index(installation, doc("a"))
    shard = installation.shards["acme"]
    await installation.index("platform-agent", x="some text")
    other = installation.build()  # a second router, over an embedder of the same size and another space
    installation.embedder.salt = "other"
    async with other.router.lifespan_context(other):
        installation.http._transport.app = other
        refused = await index(installation, doc("b"))
        evidence = await installation.evidence("some text")

    assert (refused.status_code, refused.json()["unavailable_detail"]) == (503, "embedding_mismatch")
    assert (evidence.status_code, evidence.json()["unavailable_detail"]) == (503, "embedding_mismatch")
    assert set(shard.documents) == {"a"}


async def test_one_id_twice_in_a_batch_is_refused_with_both_places(installation):
    """Last wins would drop a text without a word."""
    answer = await index(installation, doc("a", "x"), doc("b", "y"), doc("a", "z"))

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (
        400,
        "duplicate_id",
        "documents[2].id",
    )
    assert "documents[0]" in answer.json()["detail"]


async def test_a_bad_document_keeps_the_whole_batch_out(installation):
    """Everything is checked before anything is written."""
    answer = await index(installation, doc("good"), doc("bad", metadata={"deep": [[[[[[[[1]]]]]]]]}))

    assert (answer.status_code, answer.json()["field"]) == (400, "documents[1].metadata")
    assert installation.shards["acme"].documents == {}


async def test_a_write_whose_answer_is_lost_is_unknown(installation):
    """Neither done nor not done: only "repeat the call" is true."""
    await index(installation, doc("first"))
    installation.shards["acme"].fault, installation.shards["acme"].faulty_paths = "reset", {"/write"}
    installation.shards["acme"].seen.clear()
    answer = await index(installation, doc("b"))

    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    assert "repeat the call" in answer.json()["detail"]
    assert installation.shards["acme"].paths().count("/write") == 1


@pytest.mark.parametrize(
    "fault", ["empty", "garbage", "foreign", ShardFault(503, "outcome_unknown", "outcome_unknown")]
)
async def test_a_write_with_a_strange_answer_is_unknown(installation, fault):
    """It was sent; what it did nobody knows."""
    await index(installation, doc("first"))
    await index(
        installation, doc("first")
    )  # now the router knows the embedding and asks for no status before it writes
    installation.shards["acme"].fault, installation.shards["acme"].faulty_paths = fault, {"/write"}

    assert (await index(installation, doc("b"))).json()["code"] == "outcome_unknown"


IDS = [
    "plain",
    "a/b",
    "a/../b",
    "it's",
    "'; DROP TABLE chunks; --",
    'say "hi"',
    "%",
    "_",
    "a%2Fb",
    "ünï",
    "*",
    "a b",
    "a\\b",
]


@pytest.mark.parametrize("doc_id", IDS)
async def test_delete_removes_exactly_that_id(installation, doc_id):
    """Quotes, SQL and wildcards in an id are characters of an id."""
    await index(installation, *(doc(one, f"text of {number}") for number, one in enumerate(IDS)))
    path = "/v1/documents/" + "".join(f"%{byte:02X}" for byte in doc_id.encode())
    answer = await installation.http.delete(path, headers=installation.headers())

    assert (answer.status_code, answer.json()["found"]) == (200, True)
    assert set(installation.shards["acme"].documents) == set(IDS) - {doc_id}


async def test_deleting_what_is_not_there_is_no_error(installation):
    """Idempotent: a lost answer is repeated as it is."""
    answer = await installation.http.delete("/v1/documents/none", headers=installation.headers())

    assert (answer.status_code, answer.json()["found"]) == (200, False)


async def test_a_listing_pages_through_every_document_once(installation):
    """A cursor goes on where the last page ended, whatever is written meanwhile."""
    await index(installation, *(doc(f"d{number:02}", f"text {number}") for number in range(7)))
    pages = [(await installation.get("/v1/documents?limit=3")).json()]
    while pages[-1]["cursor"]:
        pages.append((await installation.get(f"/v1/documents?limit=3&cursor={pages[-1]['cursor']}")).json())

    assert [[one["id"] for one in page["documents"]] for page in pages] == [
        ["d00", "d01", "d02"],
        ["d03", "d04", "d05"],
        ["d06"],
    ]


@pytest.mark.parametrize("doc_id", IDS)
def test_a_cursor_reads_back(doc_id):
    """Any id may be the last of a page."""
    assert parse_cursor(format_cursor(doc_id)) == doc_id


async def test_headings_and_titles_reach_the_shard(installation):
    """A chunk is understood by the headings above it."""
    await index(installation, doc(text="# Pumps\n\nrestart after pressure drops", title="Manual"))
    (document, _) = installation.shards["acme"].documents["a"]

    assert document.chunks[0].heading == "Pumps"
    assert document.title == "Manual"


async def test_only_so_many_batches_are_indexed_at_once(installation):
    """Each may hold 8 MiB of text and its vectors: the next one waits outside."""
    installation.embedder.hangs = True
    running = [asyncio.create_task(index(installation, doc())) for _ in range(8)]
    await asyncio.sleep(0)
    answers = [await index(installation, doc()) for _ in range(1)]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)

    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "overloaded")
    assert "retry-after" in answers[0].headers


async def test_what_is_stored_just_so_is_not_embedded_again(installation):
    """Indexing a folder once more must cost what changed, not what is there."""
    await installation.index(a="pump pressure", b="invoice dates")
    embedded, sequence = installation.embedder.calls, installation.shards["acme"].sequence
    again = await installation.index(a="pump pressure", b="invoice dates")
    unchanged_calls = installation.embedder.calls
    mixed = await installation.index(a="pump pressure", b="invoice amounts")

    assert [(each["outcome"], each["chunks"]) for each in again["results"]] == [("unchanged", 1), ("unchanged", 1)]
    assert parse_position(again["position"])[1] == sequence
    assert unchanged_calls == embedded
    assert [each["outcome"] for each in mixed["results"]] == ["unchanged", "indexed"]
