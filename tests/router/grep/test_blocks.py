"""Blocks of segments: nothing lost, nothing judged twice, line numbers right."""

import io
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundplane_router.grep.blocks import Block, cut_long_lines, read_blocks

FILES = st.lists(
    st.sampled_from([b"a", b"bc", b" ", b"\n", b"\n\n", "ü".encode(), b"xxxxxxxx", b"\xff"]), max_size=80
).map(b"".join)
SIZES = st.integers(1, 40)


def blocks_of(content: bytes, block_bytes: int, max_line_bytes: int) -> list[Block]:
    source = io.BytesIO(content)
    return list(read_blocks(lambda: source.read(block_bytes), block_bytes, max_line_bytes))


def judged_segments(blocks: list[Block]) -> list[tuple[int, int, bytes]]:
    return [
        (block.first_segment + ordinal, block.line(ordinal), block.text.split(b"\n")[ordinal])
        for block in blocks
        for ordinal in block.judged
    ]


@given(FILES, SIZES, st.integers(1, 20))
@example(b"ab\ncdef\n\n", 3, 2)
def test_every_segment_is_judged_once_on_its_line(content, block_bytes, max_line_bytes):
    """The size of a block is an accident: it must not show in what is found or where."""
    small = judged_segments(blocks_of(content, block_bytes, max_line_bytes))
    lines = content.removesuffix(b"\n").split(b"\n") if content else []

    assert small == judged_segments(blocks_of(content, 1 << 20, max_line_bytes))
    assert [ordinal for ordinal, _, _ in small] == list(range(len(small)))
    assert [b"".join(text for _, line, text in small if line == number) for number in range(1, len(lines) + 1)] == lines


@given(FILES, SIZES, st.integers(1, 20))
def test_a_judged_segment_has_its_neighbours_in_the_block(content, block_bytes, max_line_bytes):
    """A hit reaches over three segments, also where two blocks meet."""
    blocks = blocks_of(content, block_bytes, max_line_bytes)
    last = max((ordinal for ordinal, _, _ in judged_segments(blocks)), default=0)

    for block in blocks:
        for ordinal in block.judged:
            assert ordinal > 0 or block.first_segment == 0
            assert ordinal + 1 < block.segments or block.first_segment + ordinal == last


@given(FILES, st.integers(1, 20))
def test_no_segment_is_longer_than_the_limit(content, max_line_bytes):
    """A file without line breaks must not become one line in which everything stands together."""
    bounds = [0, *cut_long_lines(content, max_line_bytes), len(content)]
    pieces = [content[start:end] for start, end in pairwise(bounds)]

    assert all(len(line) <= max_line_bytes for piece in pieces for line in piece.split(b"\n"))


@pytest.mark.parametrize(
    ("line", "first"),
    [
        pytest.param(b"one two threefour", b"one two ", id="after-a-blank"),
        pytest.param(b'"one","two"three', b'"one","two"', id="after-a-separator"),
        pytest.param("ööööööööö".encode(), "öööööö".encode(), id="between-characters"),
    ],
)
def test_a_long_line_is_cut_where_no_keyword_stands(line, first):
    """A keyword that is cut in two is not found."""
    assert line[: cut_long_lines(line, 13)[0]] == first
