"""Chunks: nothing lost, nothing too large, under the right heading."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane_router.chunking import MAX_HEADINGS, PIECE_CHARS, ChunkLimits, chunk
from groundplane_router.embedders.wordpiece import WordPiece

WORDPIECE = WordPiece.bundled()
SMALL = ChunkLimits(tokens=12, overlap_tokens=3)


def words(text):
    return len(text.split())


PARTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "# A\n",
            "## B\n\n",
            "### C\r\n",
            "```\n# no heading\n```\n",
            "> ",
            "- item\n",
            "1. x\n",
            "| a | b |\n",
            "\n\n",
        ]
    ),
    st.sampled_from(
        ["word " * 30, "sentence one. Sentence two! ", "x" * 300, " " * 400, "中文" * 30, "👩‍👩‍👧" * 9, "\0" * 50]
    ),
)
DOCUMENTS = st.lists(PARTS, max_size=12).map("".join)


@given(DOCUMENTS)
def test_document_can_be_put_together_again(text):
    """The shard keeps no other copy of a document than its chunks."""
    chunks = chunk(text, WORDPIECE.count, SMALL)

    rebuilt = ""
    for part in chunks:
        assert part.start <= len(rebuilt) < part.end
        rebuilt += part.text[len(rebuilt) - part.start :]
    assert rebuilt == text


@given(DOCUMENTS)
def test_chunk_is_its_range_of_the_document(text):
    """Offsets are what a reader is sent to."""
    for part in chunk(text, WORDPIECE.count, SMALL):
        assert part.text == text[part.start : part.end]


@given(DOCUMENTS)
def test_no_chunk_is_too_large(text):
    """The model would cut it without a word."""
    assert all(WORDPIECE.count(part.text) <= SMALL.tokens for part in chunk(text, WORDPIECE.count, SMALL))


@given(DOCUMENTS)
def test_chunks_advance_at_both_ends(text):
    """A chunk inside another would only crowd the answer."""
    chunks = chunk(text, WORDPIECE.count, SMALL)

    for left, right in pairwise(chunks):
        assert left.start < right.start
        assert left.end < right.end


def test_empty_document_has_no_chunks():
    """There is nothing to embed."""
    assert chunk("", words) == []


def test_short_document_is_one_chunk():
    """Splitting it would lose its context for nothing."""
    assert [part.text for part in chunk("just a few words", words)] == ["just a few words"]


def test_long_word_is_split():
    """Base64 in a document must not become one chunk that no model takes whole."""
    chunks = chunk("QUJD" * 1000, WORDPIECE.count)

    assert len(chunks) > 5
    assert all(WORDPIECE.count(part.text) <= 220 for part in chunks)


def test_blanks_without_tokens_are_bounded():
    """A megabyte of blanks counts no tokens, but no index wants it as one chunk."""
    chunks = chunk(" " * 100_000 + "end", WORDPIECE.count)

    assert max(len(part.text) for part in chunks) <= 220 * 16
    assert sum(len(part.text) for part in chunks) < 130_000  # overlaps are bounded too


def test_neighbours_overlap():
    """A sentence at a border must be whole in one of the two chunks."""
    chunks = chunk(" ".join(f"w{number}" for number in range(60)), words, SMALL)

    assert all(right.start < left.end for left, right in pairwise(chunks))


MARKDOWN = (
    "# Pumps\n\nAll about pumps.\n\n## Restart\n\n"
    + "Wait for the pressure. " * 8
    + "\n\n## Repair\n\n```sh\n# not a heading\nls\n```\n\n"
    + "Use the kit. " * 8
)


def test_chunks_know_their_headings():
    """`Wait for the pressure` means nothing without `Restart`."""
    headings = [part.heading for part in chunk(MARKDOWN, words, SMALL)]

    assert headings[0] == "Pumps"
    assert set(headings) == {"Pumps", "Pumps > Restart", "Pumps > Repair"}
    assert headings == sorted(headings, key=["Pumps", "Pumps > Restart", "Pumps > Repair"].index)


def test_deeper_heading_ends_with_its_section():
    """A path must not keep the heading of a section that is over."""
    text = "# A\n\n### B\n\n" + "x " * 12 + "\n\n## C\n\n" + "y " * 12

    assert chunk(text, words, SMALL)[-1].heading == "A > C"


def test_heading_stays_with_what_follows():
    """A chunk that is only a heading answers no question and matches many."""
    chunks = chunk(MARKDOWN, words, SMALL)

    for part in chunks:
        assert [line for line in part.text.split("\n") if line and not line.startswith("## ")]


@pytest.mark.parametrize(
    "line",
    ["#hashtag", "####### seven", "    # indented code", "# " + "x" * 300],
    ids=["no-blank", "seven", "indented", "too-long"],
)
def test_other_lines_are_no_headings(line):
    """CommonMark's rules, except that a heading of hundreds of characters is a paragraph."""
    assert chunk(f"{line}\n\ntext", words)[0].heading == ""


def test_long_document_is_cut_at_its_headings():
    """Pieces keep the time linear; their borders must be where a reader would put them."""
    section = "## Part\n\n" + "some words here. " * 300 + "\n\n"
    text = section * (3 * PIECE_CHARS // len(section))

    chunks = chunk(text, words)

    borders = [right.start for left, right in pairwise(chunks) if right.start == left.end]
    assert borders
    assert all(text.startswith("## Part", border) for border in borders)


@pytest.mark.parametrize(
    "text",
    [">" * 200_000, "> " * 50_000, "- " * 50_000, "[" * 100_000, "# a\n" * 25_000, "Q" * 200_000],
    ids=["quotes", "spaced-quotes", "lists", "brackets", "headings", "base64"],
)
@pytest.mark.timeout(20)
def test_hostile_text_does_not_stop_the_router(text):
    """Nested quotes alone took the Markdown parser 23 s for 200 KB, with the interpreter locked for every tenant."""
    assert chunk("# T\n\n" + text, WORDPIECE.count)[-1].end == len(text) + 5


def test_headings_looked_at_are_bounded():
    """Eight megabytes of headings would otherwise keep two million paths in memory."""
    chunks = chunk("".join(f"# {number}\n" for number in range(MAX_HEADINGS + 5_000)), words)

    assert chunks[-1].heading == str(MAX_HEADINGS - 1)


def test_lone_surrogate_is_refused():
    """It cannot be stored as UTF-8, and the splitter would panic on it."""
    with pytest.raises(InvalidInput, match="lone surrogate at character 3") as caught:
        chunk("abc\ud800", words)

    assert caught.value.field == "text"
