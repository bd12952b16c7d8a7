"""Folding bytes is folding characters, only faster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane_router.grep.folding import continues_word, fold, fold_utf_8, is_word_after, is_word_before

GREEK_CAPITALS = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ"


@given(st.text())
def test_folded_bytes_are_the_folded_text(text):
    """A keyword is folded as text, a file as bytes: they must meet."""
    assert fold_utf_8(text.encode()) == fold(text).encode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Pump — “Straße” ﬁne İ K", id="few-characters-beyond-ascii"),
        pytest.param(GREEK_CAPITALS + " and Pump", id="more-capitals-than-are-replaced-one-by-one"),
    ],
)
def test_both_ways_of_folding_agree(text):
    """The switch from one way to the other must not show."""
    assert fold_utf_8(text.encode()) == fold(text).encode()


@given(st.binary())
def test_any_bytes_are_folded_and_folded_bytes_stay(text):
    """A file may hold anything."""
    folded = fold_utf_8(text)

    assert fold_utf_8(folded) == folded
    assert folded.count(b"\n") == text.count(b"\n")


@given(st.text(alphabet="a-é\u0301東😀 ", max_size=8), st.text(alphabet="a-é\u0301東😀 ", max_size=8))
def test_neighbours_are_read_as_characters(before, after):
    """Word borders are a matter of characters, also where one takes four bytes."""
    text, position = (before + after).encode(), len(before.encode())

    assert is_word_before(text, position) == continues_word(before[-1:])
    assert is_word_after(text, position) == continues_word(after[:1])
