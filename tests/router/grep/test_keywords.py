"""From a question to keywords and the bar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane_router.grep.keywords import MAX_KEYWORD_CHARS, MAX_KEYWORDS, parse_keywords


def texts(question: str) -> list[str]:
    return [keyword.text for keyword in parse_keywords(question).items]


def identifiers(question: str) -> list[str]:
    return [keyword.text for keyword in parse_keywords(question).items if keyword.is_identifier]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param("What is the torque of the pump?", ["torque", "pump"], id="stop-words-dropped"),
        pytest.param("Pump pump PUMP", ["pump"], id="distinct-whatever-the-case"),
        pytest.param("STRASSE Straße", ["strasse"], id="folded-by-unicode"),
        pytest.param("well-known and/or", ["well", "known"], id="joined-words-come-apart"),
        pytest.param("the pump's seal doesn't hold", ["pump", "seal", "hold"], id="apostrophes"),
        pytest.param("error E-4012.", ["error", "e-4012"], id="identifier-without-the-full-stop"),
        pytest.param("foo_bar a@b.c 10.5 7", ["foo_bar", "a@b.c", "10.5"], id="names-and-numbers-stay-whole"),
        pytest.param("東京の天気 x", ["東京", "京の", "の天", "天気"], id="pairs-of-unspaced-script"),
        pytest.param("水", ["水"], id="one-character-word"),
        pytest.param("हिन्दी में", ["हिन्दी", "में"], id="vowel-signs-belong-to-the-word"),
        pytest.param("cafe\u0301", ["café"], id="accents-composed"),
        pytest.param("who is it? -- !", [], id="nothing-left"),
    ],
)
def test_question_becomes_keywords(question, expected):
    """Each rule of the module's docstring, by example."""
    assert texts(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param("E-4012 PA4711 foo_bar 192.168.0.1", ["e-4012", "pa4711", "foo_bar", "192.168.0.1"], id="names"),
        pytest.param("10.5 2024 v1.2 pump", [], id="chance-words"),
    ],
)
def test_only_what_names_one_thing_is_an_identifier(question, expected):
    """An identifier alone makes a hit, so a year or a short number must not be one."""
    assert identifiers(question) == expected


@pytest.mark.parametrize(("count", "bar"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (9, 5), (10, 5), (32, 5)])
def test_bar_is_all_of_two_then_half_then_five(count, bar):
    """One chance word must never be a hit of a longer question."""
    question = " ".join(f"word{chr(97 + index // 26)}{chr(97 + index % 26)}" for index in range(count))

    assert parse_keywords(question).bar == bar


def test_an_identifier_alone_reaches_the_bar():
    """Nobody writes an error code by chance."""
    keywords = parse_keywords("E-4012 coolant flow pressure alarm")

    assert keywords.weight(0b00001) >= keywords.bar > keywords.weight(0b00010)


@given(st.text(max_size=3_000))
def test_keywords_are_bounded_and_found_in_the_folded_question(question):
    """Any question is accepted; what is looked for is bounded whatever its length."""
    found = texts(question)

    assert len(found) <= MAX_KEYWORDS
    assert len(set(found)) == len(found)
    assert all(0 < len(text) <= MAX_KEYWORD_CHARS for text in found)


def test_an_overlong_token_is_looked_for_by_its_beginning():
    """A cut identifier no longer ends where a word ends, so it must not claim to."""
    (keyword,) = parse_keywords("ab1" * 100).items

    assert len(keyword.text) == MAX_KEYWORD_CHARS
    assert not keyword.is_identifier
