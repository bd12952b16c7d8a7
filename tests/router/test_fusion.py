"""The ranking over two shards is that of one index, whatever lives where and whoever answers first."""

import math
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.wire.internal import Candidate, ChunkFields, SearchAnswer, Statistics
from groundplane.wire.names import Scope
from groundplane_router.fusion import FusionRule, ScopeAnswer, fuse, sum_statistics, window_for

OPEN = FusionRule(dense_floor=None, term_floor=0.0)
TERMS = ("alpha", "beta")


class Chunk(msgspec.Struct, frozen=True):
    """One chunk of a made-up corpus."""

    doc_id: str
    cosine: float | None = 0.0
    tf: tuple[int, ...] = (0, 0)
    length: int = 10
    ordinal: int = 0


def scope_answer(scope, chunks):
    """Return what a shard that holds exactly `chunks` answers when all of them are candidates."""
    terms = len(chunks[0].tf) if chunks else len(TERMS)
    candidates = [
        Candidate(
            one.cosine,
            one.tf,
            one.length,
            msgspec.Raw(msgspec.msgpack.encode(ChunkFields(one.doc_id, one.ordinal, "text", None, None, None, b""))),
        )
        for one in chunks
    ]
    frequencies = tuple(sum(one.tf[term] > 0 for one in chunks) for term in range(terms))
    statistics = Statistics(
        len({one.doc_id for one in chunks}), len(chunks), sum(one.length for one in chunks), frequencies
    )
    answer = SearchAnswer(
        incarnation="i",
        epoch=1,
        sequence=1,
        age_seconds=0.0,
        document_sequence=1,
        statistics=statistics,
        candidates=candidates,
    )
    return ScopeAnswer(scope=scope, answer=answer)


def rank(tenant, platform=(), *, k=50, rule=OPEN, **more):
    answers = [scope_answer(Scope.TENANT, list(tenant)), scope_answer(Scope.PLATFORM, list(platform))]
    return fuse(TERMS, answers, k=k, rule=rule, **more)


def tiers(hits):
    """Return the hits as (score, ids of all that have it): what must not depend on the split."""
    return [(score, {hit.chunk_id for hit in group}) for score, group in groupby(hits, key=lambda hit: hit.score)]


cosines = st.sampled_from([-1.0, -0.2, 0.0, 0.31, 0.35, 0.5, 0.5000001, 0.9, 1.0])
chunks = st.builds(
    Chunk,
    doc_id=st.uuids().map(str),
    cosine=cosines,
    tf=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    length=st.integers(8, 12),
)
corpora = st.lists(chunks, min_size=1, max_size=20, unique_by=lambda one: one.doc_id)
rules = st.builds(
    FusionRule,
    method=st.sampled_from(["convex", "rrf"]),
    dense_floor=st.sampled_from([None, 0.35]),
    term_floor=st.sampled_from([0.0, 0.5, 1.0]),
)


@given(corpora, st.randoms(use_true_random=False), rules)
def test_moving_documents_between_the_shards_does_not_change_the_ranking(corpus, rng, rule):
    """A tenant must not win or lose by where its documents live."""
    in_tenant = {one.doc_id for one in corpus if rng.random() < 0.5}
    tenant = [one for one in corpus if one.doc_id in in_tenant]
    platform = [one for one in corpus if one.doc_id not in in_tenant]

    assert tiers(rank(tenant, platform, rule=rule)) == tiers(rank(corpus, rule=rule))


@given(corpora, corpora, rules)
def test_the_order_in_which_shards_answer_does_not_matter(tenant, platform, rule):
    """The same question twice must give the same answer."""
    first, second = scope_answer(Scope.TENANT, tenant), scope_answer(Scope.PLATFORM, platform)

    assert fuse(TERMS, [first, second], k=5, rule=rule) == fuse(TERMS, [second, first], k=5, rule=rule)


@given(corpora, corpora, rules)
def test_scores_lie_between_zero_and_one_and_fall(tenant, platform, rule):
    """A client may show a score as a share and trust the order."""
    scores = [hit.score for hit in rank(tenant, platform, rule=rule)]

    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(corpora, corpora)
def test_on_equal_scores_the_tenant_comes_first_then_id(tenant, platform):
    """The tie rule is a promise: a tenant's own fact beats the platform's equal one."""
    hits = rank(tenant, platform)

    for _, group in groupby(hits, key=lambda hit: hit.score):
        tied = [(hit.scope != Scope.TENANT, hit.doc_id) for hit in group]
        assert tied == sorted(tied)


@given(corpora, st.data())
def test_a_better_cosine_never_worsens_a_rank(corpus, data):
    """A ranking that punishes nearness would be no ranking."""
    chosen = data.draw(st.sampled_from(corpus))
    raised = msgspec.structs.replace(chosen, cosine=min(1.0, chosen.cosine + 0.4))
    others = [one for one in corpus if one is not chosen]

    before = [hit.doc_id for hit in rank(corpus)]
    after = [hit.doc_id for hit in rank([*others, raised])]
    if chosen.doc_id in before:
        assert after.index(chosen.doc_id) <= before.index(chosen.doc_id)


def test_bm25_and_fusion_follow_the_published_formulas():
    """Scores are explained in the docs; a reader must be able to compute them by hand."""
    corpus = [Chunk("a", 0.5, (2, 0), 12), Chunk("b", 0.8, (0, 0), 8)]

    best, second = rank(corpus)
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    bm25 = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 12 / 10))
    assert (best.doc_id, second.doc_id) == ("a", "b")
    assert best.scores.bm25 == pytest.approx(bm25, abs=1e-6)
    assert best.score == pytest.approx(0.2 + 0.8 * 1.5 / 1.8, abs=1e-6)
    assert second.score == pytest.approx(0.8, abs=1e-6)


def test_reciprocal_ranks_are_scaled_so_that_first_in_both_legs_is_one():
    """A score of 0.03 at best would look like a bad answer."""
    hits = rank([Chunk("a", 0.9, (1, 0)), Chunk("b", 0.1, (0, 0))], rule=FusionRule(method="rrf", term_floor=0))

    assert [hit.score for hit in hits] == [1.0, pytest.approx(61 / 62 / 2, abs=1e-6)]


def test_no_vector_leaves_the_words_alone():
    """A corpus that is being re-indexed answers by keywords."""
    hits = rank([Chunk("a", None, (1, 0)), Chunk("b", None, (0, 0))])

    assert [(hit.doc_id, hit.score, hit.match) for hit in hits] == [("a", 0.2, "keyword")]


def test_nothing_in_any_shard_is_no_hit_and_no_error():
    """An empty corpus divides by no zero."""
    assert rank([], []) == []


@pytest.mark.parametrize(
    ("cosine", "tf", "expected"),
    [
        pytest.param(0.35, (0, 0), "semantic", id="at-the-dense-floor"),
        pytest.param(0.349, (0, 0), None, id="below-both-floors"),
        pytest.param(0.1, (1, 1), "keyword", id="all-terms-matched"),
        pytest.param(0.1, (0, 1), None, id="common-term-alone-is-too-little"),
        pytest.param(0.1, (1, 0), "keyword", id="rare-term-alone-is-enough"),
        pytest.param(0.6, (1, 1), "both", id="near-and-named"),
    ],
)
def test_a_hit_needs_nearness_or_enough_of_the_questions_words(cosine, tf, expected):
    """Vector search always returns neighbours; without a floor nothing could ever be said to be absent."""
    filler = [Chunk(f"filler-{number}", -0.5, (0, 1)) for number in range(9)]
    hits = rank([Chunk("it", cosine, tf), *filler], rule=FusionRule(dense_floor=0.35, term_floor=0.5))

    assert {hit.doc_id: hit.match for hit in hits}.get("it") == expected


def test_a_term_that_no_corpus_holds_counts_at_most_weight():
    """A question about an unknown name is not answered by its other words."""
    corpus = [Chunk("a", -0.9, (1, 0)), Chunk("b", -0.9, (1, 0)), Chunk("c", -0.9, (0, 0))]

    assert rank(corpus, rule=FusionRule(dense_floor=0.35, term_floor=0.5)) == []


def test_at_most_three_chunks_of_one_document():
    """One long document must not fill the answer."""
    long = [Chunk("long", 0.9, ordinal=ordinal) for ordinal in range(6)]

    hits = rank([*long, Chunk("short", 0.2)])
    assert [hit.chunk_id for hit in hits] == ["long#0", "long#1", "long#2", "short#0"]


def test_the_cap_counts_each_scopes_document_apart():
    """A platform document of the same name takes no place from the tenant's."""
    chunks = [Chunk("same", 0.9, ordinal=ordinal) for ordinal in range(3)]

    assert len(rank(chunks, chunks)) == 6


def test_one_id_in_both_scopes_is_two_documents():
    """A tenant's document never hides the platform's of the same name."""
    hits = rank([Chunk("same", 0.9)], [Chunk("same", 0.9)])

    assert [(hit.scope, hit.doc_id) for hit in hits] == [(Scope.TENANT, "same"), (Scope.PLATFORM, "same")]


@pytest.mark.parametrize("in_tenant", [True, False], ids=["two-shards", "one-shard"])
def test_what_is_in_neither_global_leg_is_no_candidate(in_tenant):
    """A small shard brings up chunks that one large index would never have looked at."""
    near = [Chunk(f"near{number:02}", 0.9) for number in range(20)]
    named = [Chunk(f"named{number:02}", -1.0, (3, 0)) for number in range(20)]
    middling = Chunk("middling", 0.8, (2, 0))  # second best at both, and best of all by the sum

    hits = rank([middling], near + named, k=5) if in_tenant else rank([*near, *named, middling], k=5)
    assert "middling" not in {hit.doc_id for hit in hits}


def test_each_leg_is_cut_to_the_global_window_and_ranked_in_it():
    """Ranks beyond the window would depend on how many shards were asked."""
    near = [Chunk(f"n{number:02}", 0.9 - number / 100) for number in range(30)]
    hits = rank(near, k=1, explain=True)
    last = rank(near, k=5)

    assert window_for(1) == window_for(5) == 20
    assert hits[0].scores.dense_rank == 1
    assert [hit.scores.dense_rank for hit in last] == [1, 2, 3, 4, 5]
    assert len(rank(near, k=50)) == 30


def test_explain_shows_what_a_hit_was_measured_against():
    """Floors are settings: whoever tunes them must see them at work."""
    (hit,) = rank([Chunk("a", 0.5, (1, 0))], rule=FusionRule(dense_floor=0.35), explain=True)

    assert hit.explain is not None
    assert hit.explain.matched_terms == ["alpha"]
    assert 0 < hit.explain.matched_idf_share < 1
    assert (hit.explain.dense_floor, hit.explain.term_floor) == (0.35, 0.5)


def test_summed_statistics_are_those_of_one_corpus():
    """The whole merging rests on it."""
    total = sum_statistics([Statistics(1, 2, 30, (1, 0)), Statistics(4, 5, 60, (2, 3))], 2)

    assert total == Statistics(5, 7, 90, (3, 3))


def test_a_chunk_that_cannot_be_decoded_is_an_error_and_not_left_out():
    """A hit that silently vanished would be a false absence."""
    answer = scope_answer(Scope.TENANT, [Chunk("a", 0.9)])
    answer.answer.candidates[0] = Candidate(0.9, (0, 0), 1, msgspec.Raw(b"\x80"))

    with pytest.raises(msgspec.MsgspecError):
        fuse(TERMS, [answer], k=5, rule=OPEN)
