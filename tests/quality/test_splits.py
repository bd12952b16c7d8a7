"""Which of two shards a document lives in must not change the ranking: on real questions, over many splits.

The tenant's share is drawn at random or by topic (the neighbours of one document), 5 to 50 % of all. What one shard that
holds everything answers is the truth; ids and order of the top five must equal it.
"""

import random

import numpy as np
import pytest

from groundplane.demo import TENANTS
from groundplane.wire.filters import Or, Prefix
from groundplane.wire.names import Scope
from groundplane_shard.corpus import Corpus
from tests.quality.collections import demo_documents, demo_questions
from tests.quality.ranking import Ranker, build_corpus, embed_all, prepare

pytestmark = [pytest.mark.quality, pytest.mark.timeout(900)]

DIMENSION = 384
SPLITS = 20
QUESTIONS = 25
TOP = 5
FILTERS = {
    "unfiltered": None,
    "filtered": Or(
        filters=(
            Prefix(key="doc_id", value="1"),
            Prefix(key="doc_id", value="acme"),
            Prefix(key="doc_id", value="globex"),
        )
    ),
}


def split(operations, seed):
    """Return the tenant's part and the platform's, at random for even seeds, by topic for odd ones."""
    generator = random.Random(seed)
    size = max(1, int(len(operations) * generator.uniform(0.05, 0.5)))
    order = list(range(len(operations)))
    if seed % 2:
        matrix = np.stack([operation.vectors[0] for operation in operations])
        order = np.argsort(-(matrix @ matrix[generator.randrange(len(operations))]), kind="stable").tolist()
    else:
        generator.shuffle(order)
    chosen = set(order[:size])
    return (
        [operation for number, operation in enumerate(operations) if number in chosen],
        [operation for number, operation in enumerate(operations) if number not in chosen],
    )


async def top(ranker, embedded, questions, condition):
    """Return the ids of the best five chunks of every question."""
    return {
        text: [hit.chunk_id for hit in await ranker.hits(text, embedded.vectors[text], TOP, condition)]
        for text in questions
    }


async def assert_splits_agree(embedded, texts, directory, name):
    operations = prepare(embedded.writes, DIMENSION)
    whole = Ranker({Scope.PLATFORM: await build_corpus(directory / "whole", operations)}, embedded.rule)
    condition = FILTERS[name]
    differences = []
    for seed in range(SPLITS):
        questions = random.Random(seed).sample(texts, min(QUESTIONS, len(texts)))
        expected = await top(whole, embedded, questions, condition)
        tenant, platform = split(operations, seed)
        corpora = {
            Scope.TENANT: await build_corpus(directory / f"tenant-{seed}", tenant),
            Scope.PLATFORM: await build_corpus(directory / f"platform-{seed}", platform),
        }
        found = await top(Ranker(corpora, embedded.rule), embedded, questions, condition)
        differences += [
            (seed, text, expected[text], found[text]) for text in questions if found[text] != expected[text]
        ]
        assert any(expected.values())

    assert differences == []


@pytest.fixture(scope="module")
def demo():
    """The whole demo corpus and its judged questions."""
    texts = [question.text for tenant in TENANTS for question in demo_questions()[tenant]]
    return embed_all([document for scope in demo_documents().values() for document in scope], texts), sorted(set(texts))


@pytest.mark.parametrize("name", FILTERS)
async def test_any_split_of_the_demo_corpus_ranks_as_one_shard(demo, tmp_path, name):
    """Promise 4, on the corpus that everybody has."""
    embedded, texts = demo

    await assert_splits_agree(embedded, texts, tmp_path, name)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("collection", ["cranfield", "cisi"])
async def test_any_split_of_a_judged_collection_ranks_as_one_shard(collection_of, tmp_path, collection, name):
    """Promise 4, on text that nobody wrote for us."""
    loaded, embedded = collection_of(collection)

    await assert_splits_agree(embedded, [question.text for question in loaded.questions], tmp_path, name)


async def test_flush_restart_and_snapshot_leave_the_ranking_as_it_was(demo, tmp_path):
    """Nothing that maintenance does may be seen in an answer."""
    embedded, texts = demo
    operations = prepare(embedded.writes, DIMENSION)
    corpus = await build_corpus(tmp_path / "table", operations)
    before = await top(Ranker({Scope.TENANT: corpus}, embedded.rule), embedded, texts, None)
    await corpus.flush()
    flushed = await top(Ranker({Scope.TENANT: corpus}, embedded.rule), embedded, texts, None)
    await corpus.copy_to(tmp_path / "copy")
    reopened = await Corpus.open(tmp_path / "copy")
    restarted = await top(Ranker({Scope.TENANT: reopened}, embedded.rule), embedded, texts, None)
    indexed = await Corpus.open(tmp_path / "copy", exact_bytes=0)
    other_engine = await top(Ranker({Scope.TENANT: indexed}, embedded.rule), embedded, texts, None)

    assert flushed == before
    assert restarted == before
    assert other_engine == before
