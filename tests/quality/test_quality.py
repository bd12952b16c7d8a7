"""How well the product ranks: on its own judged corpus always, on two public collections where they are at hand."""

import pytest

from groundplane.demo import TENANTS
from groundplane.wire.names import Scope
from groundplane_router.fusion import FusionRule
from tests.quality.collections import (
    demo_documents,
    demo_questions,
    demo_unanswerable,
    ndcg,
)
from tests.quality.ranking import Ranker, build_corpus, embed_all, prepare

pytestmark = [pytest.mark.quality, pytest.mark.timeout(900)]

DIMENSION = 384
DEEP = 30


@pytest.fixture(scope="module")
def demo():
    """The demo corpus with everything embedded."""
    questions = demo_questions()
    texts = [question.text for tenant in TENANTS for question in questions[tenant]]
    texts += [text for tenant in TENANTS for text in demo_unanswerable()[tenant]]
    return embed_all([document for scope in demo_documents().values() for document in scope], texts)


async def demo_ranker(demo, tenant, directory, rule=None):
    """Return what `tenant` is answered from: its own corpus and the platform's."""
    by_id = {write.doc_id: write for write in demo.writes}
    documents = demo_documents()
    corpora = {}
    for scope, name in ((Scope.TENANT, tenant), (Scope.PLATFORM, "platform")):
        operations = prepare([by_id[document.id] for document in documents[name]], DIMENSION)
        corpora[scope] = await build_corpus(directory / name, operations)
    return Ranker(corpora, rule or demo.rule)


async def test_hybrid_ranks_the_demo_corpus_no_worse_than_either_leg_alone(demo, tmp_path):
    """Fusing that loses to one of its legs would be work for nothing."""
    hybrid, dense, bm25 = [], [], []
    for tenant in TENANTS:
        product = await demo_ranker(demo, tenant, tmp_path / "product")
        everything = await demo_ranker(demo, tenant, tmp_path / "everything", FusionRule(term_floor=0.0))
        for question in demo_questions()[tenant]:
            vector = demo.vectors[question.text]
            hits = await product.hits(question.text, vector, 10)
            legs = await everything.hits(question.text, vector, 50)
            hybrid.append(ndcg([hit.doc_id for hit in hits], question.relevant))
            dense.append(ndcg(ranked_by(legs, "dense"), question.relevant))
            bm25.append(ndcg(ranked_by(legs, "bm25"), question.relevant))

    print(f"demo nDCG@10: hybrid {mean(hybrid):.3f}, dense {mean(dense):.3f}, bm25 {mean(bm25):.3f}")
    assert mean(hybrid) >= max(mean(dense), mean(bm25))


async def test_questions_about_nothing_get_no_hit_and_judged_ones_keep_theirs(demo, tmp_path):
    """A vector search always has neighbours: only the floor can say "nothing", and it must not say it too often."""
    silent, nothing, kept, judged = 0, 0, 0, 0
    for tenant in TENANTS:
        ranker = await demo_ranker(demo, tenant, tmp_path)
        for text in demo_unanswerable()[tenant]:
            nothing += 1
            silent += not await ranker.hits(text, demo.vectors[text], 5)
        for question in demo_questions()[tenant]:
            judged += 1
            hits = await ranker.hits(question.text, demo.vectors[question.text], 5)
            kept += any(question.relevant.get(hit.doc_id, 0) > 0 for hit in hits)

    print(f"about nothing: {silent} of {nothing} without a hit; judged: {kept} of {judged} kept")
    assert nothing >= 40
    assert judged >= 60
    assert silent / nothing >= 0.95
    assert kept / judged >= 0.98


@pytest.mark.parametrize(("name", "bar"), [("cranfield", 0.39), ("cisi", 0.44)])
async def test_hybrid_ranks_a_judged_collection_well(collection_of, tmp_path, name, bar):
    """The demo corpus was written with the product in mind; these were not."""
    collection, embedded = collection_of(name)
    ranker = Ranker({Scope.PLATFORM: await build_corpus(tmp_path, prepare(embedded.writes, DIMENSION))}, embedded.rule)
    scores = []
    for question in collection.questions:
        hits = await ranker.hits(question.text, embedded.vectors[question.text], DEEP)
        scores.append(ndcg([hit.doc_id for hit in hits], question.relevant))

    print(f"{name} nDCG@10: {mean(scores):.4f} over {len(scores)} questions")
    assert mean(scores) >= bar


def ranked_by(hits, leg):
    """Return document ids by one leg's score alone, best first."""
    scored = [(getattr(hit.scores, leg), hit.doc_id) for hit in hits if getattr(hit.scores, leg)]
    return [doc_id for _, doc_id in sorted(scored, key=lambda pair: -pair[0])]


def mean(values):
    return sum(values) / len(values)
