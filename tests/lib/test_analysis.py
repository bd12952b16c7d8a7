"""What the analyser promises: words are found however they are written, and terms survive the whitespace tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.analysis import MAX_TERM_CHARACTERS, Analyser
from groundplane.errors import InvalidInput

ANALYSER = Analyser()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param("pumps", "pump", id="plural"),
        pytest.param("PUMP", "pump", id="case"),
        pytest.param("Café", "cafe", id="accent"),
        pytest.param("STRASSE", "straße", id="sharp-s"),
        pytest.param("ｐｕｍｐ", "pump", id="full-width"),
        pytest.param("Ω", "ω", id="greek"),
    ],
)
def test_spellings_of_one_word_share_a_term(left, right):
    """A question is rarely spelt as the document is."""
    assert ANALYSER.terms(left) == ANALYSER.terms(right) != []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("東京都", ["東京", "京都"], id="bigrams"),
        pytest.param("東", ["東"], id="single"),
        pytest.param("pump東京x", ["pump", "東京", "x"], id="mixed-word"),
        pytest.param("한국어", ["한국", "국어"], id="hangul"),
        pytest.param("E-4012", ["e", "4012"], id="identifier"),
        pytest.param("'; DROP TABLE --", ["drop", "tabl"], id="punctuation"),
        pytest.param("🚀 \x00 ...", [], id="no-words"),
    ],
)
def test_terms_of_known_texts(text, expected):
    """The stored terms are a format: a change here needs a new analyser version."""
    assert ANALYSER.terms(text) == expected


@given(st.text(max_size=300))
def test_terms_are_bounded_and_hold_no_white_space(text):
    """LanceDB splits the stored terms at white space: a term with a space in it would come back as two."""
    terms = ANALYSER.terms(text)

    assert all(0 < len(term) <= MAX_TERM_CHARACTERS for term in terms)
    assert " ".join(terms).split() == terms


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=200))
def test_the_ascii_path_agrees_with_the_general_one(text):
    """The short way through plain text must not find other words than the long one."""
    assert Analyser().terms(text) == Analyser().terms(text + " é")[:-1]


def test_query_terms_are_distinct_and_capped():
    """A question of twenty thousand words must not cost twenty thousand look-ups."""
    assert ANALYSER.query_terms("pump pumps valve " + "x1 x2 x3", 3) == ("pump", "valv", "x1")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param("Where do I use FM-2254?", ("use", "fm", "2254"), id="left-out"),
        pytest.param("To be or not to be", ("to", "be", "or", "not"), id="kept-when-alone"),
        pytest.param("the", ("the",), id="single"),
        pytest.param("", (), id="empty"),
    ],
)
def test_function_words_of_a_question_do_not_count_unless_it_has_nothing_else(question, expected):
    """They would dilute a question's weight, and a chunk would match by "where" and "do"."""
    assert ANALYSER.query_terms(question, 128) == expected


def test_an_unknown_language_is_refused_by_name():
    """A typing error in a setting is found at start, not at the first document."""
    with pytest.raises(InvalidInput, match="klingon"):
        Analyser("klingon")
