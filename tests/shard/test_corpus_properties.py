"""Both engines against a model that counts and compares everything anew, through whatever happens to a corpus."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groundplane.wire.internal import SearchRequest
from groundplane_shard.corpus import Corpus
from groundplane_shard.payload import decode, encode
from groundplane_shard.rows import StoredOperation
from groundplane_shard.view import View
from tests.shard.corpus_model import Model, batches, decoded, everything, queries, request, stepwise

PROBE = request("pump", "leak", "東京", vector=(1, 0.5, 0))
ENGINES = {"exact": 1 << 30, "indexed": 0}


class CorpusMachine(RuleBasedStateMachine):
    """An exact and an indexed corpus are told the same; both must look like the model, and so like each other."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp())
        self.directories = dict.fromkeys(ENGINES, self.root / "absent")
        self.corpora: dict[str, Corpus] = {}
        self.model = Model()
        self.log: list[tuple[int, bytes]] = []
        self.views: list[tuple[Corpus, View, object]] = []
        self.generation = 0

    def teardown(self) -> None:
        for corpus, view, seen in self.views:
            assert self.runner.run(everything(corpus, view, [PROBE])) == seen
        self.views.clear()
        self.corpora.clear()
        self.runner.close()
        shutil.rmtree(self.root)

    @initialize(operations=batches)
    def open_empty_and_write(self, operations: list[StoredOperation]) -> None:
        for name, exact_bytes in ENGINES.items():
            self.directories[name] = self.root / f"{name}-0"
            self.corpora[name] = self.runner.run(Corpus.open(self.directories[name], exact_bytes=exact_bytes))
        self.write(operations)

    @rule(operations=batches)
    def write(self, operations: list[StoredOperation]) -> None:
        sequence = self.model.sequence + 1
        self.model.apply(sequence, operations)
        self.log.append((sequence, encode(operations) if operations else b""))
        for corpus in self.corpora.values():
            self.runner.run(corpus.apply(sequence, operations))

    @precondition(lambda self: self.model.sequence > 0)
    @rule(operations=batches)
    def flush_while_writing(self, operations: list[StoredOperation]) -> None:
        self.runner.run(self._flush_while_writing(operations))

    async def _flush_while_writing(self, operations: list[StoredOperation]) -> None:
        flushes = [asyncio.create_task(corpus.flush()) for corpus in self.corpora.values()]
        await asyncio.sleep(0)
        sequence = self.model.sequence + 1
        self.model.apply(sequence, operations)
        self.log.append((sequence, encode(operations) if operations else b""))
        for corpus in self.corpora.values():
            await corpus.apply(sequence, operations)
        await asyncio.gather(*flushes)

    @rule(asked=queries)
    def look_wherever_a_flush_waits(self, asked: SearchRequest) -> None:
        for corpus in self.corpora.values():
            self.runner.run(self._flush_watched(corpus, asked))

    async def _flush_watched(self, corpus: Corpus, asked: SearchRequest) -> None:
        expected = self.model.statistics(asked.terms), self.model.search(asked)

        async def check() -> None:
            found = await corpus.search(corpus.view(), asked)
            assert (found.statistics, decoded(found)) == expected

        await stepwise(corpus.flush(), check)

    @rule()
    def restart(self) -> None:
        self.generation += 1
        for name, exact_bytes in ENGINES.items():
            self.corpora[name] = self.runner.run(self._reopened(name, exact_bytes))

    async def _reopened(self, name: str, exact_bytes: int) -> Corpus:
        copy = self.root / f"{name}-{self.generation}"
        old = self.corpora[name]
        if old.flushed_sequence:
            await old.copy_to(copy)
        self.directories[name] = copy
        corpus = await Corpus.open(copy, exact_bytes=exact_bytes)
        for sequence, payload in self.log:
            if sequence > corpus.flushed_sequence:
                await corpus.apply(sequence, decode(payload, corpus.dimension) if payload else ())
        return corpus

    @precondition(lambda self: len(self.views) < 4)
    @rule(name=st.sampled_from(sorted(ENGINES)))
    def keep_a_view(self, name: str) -> None:
        corpus = self.corpora[name]
        view = corpus.view()
        self.views.append((corpus, view, self.runner.run(everything(corpus, view, [PROBE]))))

    @rule(asked=queries)
    def search(self, asked: SearchRequest) -> None:
        for corpus in self.corpora.values():
            found = self.runner.run(corpus.search(corpus.view(), asked))

            assert found.statistics == self.model.statistics(asked.terms)
            assert decoded(found) == self.model.search(asked)

    @invariant()
    def everything_equals_the_model(self) -> None:
        for corpus in self.corpora.values():
            view = corpus.view()
            rows, more = corpus.documents(view, "", 100)

            assert (view.sequence, view.document_sequence) == (self.model.sequence, self.model.document_sequence)
            assert (rows, more) == (self.model.page(), False)
            assert corpus.statistics(view, PROBE.terms) == self.model.statistics(PROBE.terms)
            for row in rows:
                document, _ = self.model.documents[row.doc_id]
                assert corpus.content_hash(row.doc_id) == document.content_hash


CorpusMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCorpusMachine = CorpusMachine.TestCase
