"""Scanning against a reference that is slow and obvious."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_router.grep.budget import Budget, GrepLimits
from groundplane_router.grep.excerpt import cut_around, unfolded_position
from groundplane_router.grep.folding import continues_word, fold
from groundplane_router.grep.keywords import Keywords, parse_keywords
from groundplane_router.grep.scan import Scan, scan_file

WORDS = [
    "pump",
    "Pumps",
    "stra\u00dfe",
    "STRASSE",
    "concatenate",
    "cat",
    "E-4012",
    "E-40123",
    "\u212aelvin",
    "kelvin",
    "東京都",
    "x\u0301cat",
]
CONTENTS = st.lists(
    st.sampled_from([word.encode() for word in WORDS] + [b" ", b" ", b"\n", b"\n", b"-", b"\xff", b"\r\n"]), max_size=60
).map(b"".join)
QUESTIONS = st.lists(
    st.sampled_from(["pump", "strasse", "cat", "E-4012", "kelvin", "東京", "absent"]), min_size=1, max_size=6
)


def scan(content: bytes, question: str, **limits: int) -> Scan:
    bounds = GrepLimits(**limits)
    source = io.BytesIO(content)
    return scan_file(lambda: source.read(bounds.block_bytes), parse_keywords(question), Budget(bounds, lambda: False))


def naive_mask(line: bytes, keywords: Keywords) -> int:
    """Try every keyword at every position of the folded line."""
    text, mask = fold(line.decode("utf-8", "replace")), 0
    for index, keyword in enumerate(keywords.items):
        for at in range(len(text)):
            starts = keyword.is_anywhere or at == 0 or not continues_word(text[at - 1])
            end = text[at + len(keyword.text) : at + len(keyword.text) + 1]
            if text.startswith(keyword.text, at) and starts and not (keyword.is_identifier and continues_word(end)):
                mask |= 1 << index
    return mask


def naive_places(content: bytes, keywords: Keywords) -> dict[int, int]:
    """Return {line: mask} of all places that reach the bar."""
    masks = [0, *(naive_mask(line, keywords) for line in content.split(b"\n")), 0]
    around = {number: masks[number - 1] | masks[number] | masks[number + 1] for number in range(1, len(masks) - 1)}
    return {number: mask for number, mask in around.items() if masks[number] and keywords.weight(mask) >= keywords.bar}


@settings(max_examples=300)
@given(CONTENTS, QUESTIONS, st.integers(1, 64))
def test_passages_are_those_of_the_reference(content, words, block_bytes):
    """The byte-wise search, the folding and the blocks are only faster, never different."""
    keywords = parse_keywords(" ".join(words))
    expected = naive_places(content, keywords)

    found = scan(content, " ".join(words), block_bytes=block_bytes, max_hits_per_file=1_000)

    assert all(expected.get(passage.line) == passage.mask for passage in found.passages)
    assert bool(found.passages) == bool(expected)
    if expected:
        assert found.passages[0].weight == max(keywords.weight(mask) for mask in expected.values())
        assert all(any(abs(line - passage.line) <= 2 for passage in found.passages) for line in expected)


@given(CONTENTS, QUESTIONS)
def test_seen_is_every_keyword_of_the_file(content, words):
    """Rarity counts files, whether or not the words stand together there."""
    keywords = parse_keywords(" ".join(words))
    expected = 0
    for line in content.split(b"\n"):
        expected |= naive_mask(line, keywords)

    assert scan(content, " ".join(words)).seen == expected


@pytest.mark.parametrize(
    ("content", "question"),
    [
        pytest.param(b"the pumps leak", "pump", id="word-start"),
        pytest.param(b"the PUMP leaks", "pump", id="upper-case"),
        pytest.param(b"in der STRASSE", "straße", id="folding-lengthens"),
        pytest.param("ΟΔΟΣ".encode(), "οδος", id="greek-final-sigma"),
        pytest.param(b"see foo_pump()", "pump", id="after-an-underscore"),
        pytest.param(b"\xff\xfepump\xff", "pump", id="invalid-utf-8"),
        pytest.param(b"\xef\xbb\xbfpump", "pump", id="byte-order-mark"),
        pytest.param("私は東京に".encode(), "東京", id="unspaced-script"),
        pytest.param(b"alarm (E-4012)", "E-4012", id="identifier"),
    ],
)
def test_keyword_is_found(content, question):
    """What a reader would call the same word is the same word."""
    assert len(scan(content, question).passages) == 1


@pytest.mark.parametrize(
    ("content", "question"),
    [
        pytest.param(b"concatenate", "cat", id="inside-a-word"),
        pytest.param("e\u0301cat".encode(), "cat", id="after-a-combining-mark"),
        pytest.param("écat".encode(), "cat", id="after-a-letter-that-is-not-ascii"),
        pytest.param(b"E-40123", "E-4012", id="identifier-goes-on"),
        pytest.param(b"one pump here", "pump valve torque seal", id="one-chance-word-of-four"),
        pytest.param(b"pump\n\n\nvalve", "pump valve", id="too-far-apart"),
    ],
)
def test_keyword_is_not_found(content, question):
    """A hit is shown to an agent as evidence, so chance must not make one."""
    assert scan(content, question).passages == []


def test_words_on_neighbouring_lines_stand_together():
    """Prose is wrapped anywhere."""
    (passage,) = scan(b"nothing\nthe pump\nand its valve\nnothing", "pump valve").passages

    assert (passage.line, passage.excerpt) == (2, "nothing\nthe pump\nand its valve")


def test_binary_file_is_counted_and_not_searched():
    """Text found in an executable is no evidence, and its context would be noise."""
    bounds = GrepLimits()
    budget = Budget(bounds, lambda: False)
    source = io.BytesIO(b"pump\0pump")

    found = scan_file(lambda: source.read(bounds.block_bytes), parse_keywords("pump"), budget)

    assert (found.passages, budget.binary_files) == ([], 1)


def test_a_huge_line_is_searched_piece_by_piece():
    """Words megabytes apart in one line do not stand together; the excerpt stays bounded and shows the match."""
    filler = b"lorem ipsum " * 200_000

    assert scan(b"pump " + filler + b" valve", "pump valve").passages == []
    (passage,) = scan(b"\n" + filler + b"pump valve " + filler, "pump valve").passages
    assert passage.line == 2
    assert "pump valve" in passage.excerpt
    assert len(passage.excerpt) <= GrepLimits().max_excerpt_chars


def test_one_file_gives_few_passages_apart_from_each_other():
    """A file that repeats itself must not fill the answer, nor show the same lines twice."""
    passages = scan(b"pump valve\n" * 1_000, "pump valve").passages

    assert len(passages) == GrepLimits().max_hits_per_file
    assert [passage.line for passage in passages] == [1, 4, 7, 10, 13]


@given(st.text(alphabet="aßİﬃ x", max_size=30), st.data())
def test_position_in_folded_text_leads_back(text, data):
    """The excerpt is cut around the match in the text as written, which folding may have lengthened."""
    position = data.draw(st.integers(0, len(text)))

    assert unfolded_position(text, len(fold(text[:position])), len(fold(text))) == position


@given(st.text(max_size=60), st.integers(0, 60), st.integers(3, 40))
def test_cut_text_is_bounded_and_holds_the_position(text, at, max_chars):
    """A context longer than the limit would let one long line fill an agent's window."""
    cut = cut_around(text, min(at, len(text)), max_chars)

    assert len(cut) <= max_chars
    assert cut.strip("…") in text or "…" in text
    assert at >= len(text) or text[at] in cut
