"""Reading a text file as blocks of whole segments.

A segment is a line, or a piece of a line longer than the limit (so that "within a line" means something in a file
without line breaks). Inside a block segments end with a newline byte, whether the file has one there or not. A block
repeats the last two segments of the one before, so every segment is judged once, with both of its neighbours.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

_SPACE = re.compile(rb"\s")
_BREAK = re.compile(rb"[\s\"',;:=(){}\[\]<>|&]")


class Block(NamedTuple):
    """A run of segments of one file. Ordinals count its segments from 0."""

    text: bytes
    segments: int  # in `text`, each ended by a newline
    first_line: int  # number of the line that segment 0 belongs to, from 1
    first_segment: int  # how many segments of the file lie before this block
    continued: tuple[int, ...]  # ordinals above 0, ascending, of segments that go on with the line before them
    judged: range  # ordinals that may be the centre of a hit; the others stand beside them

    def line(self, ordinal: int) -> int:
        """Return the line number of a segment, from 1."""
        return self.first_line + ordinal - bisect_right(self.continued, ordinal)


def read_blocks(read: Callable[[], bytes], block_bytes: int, max_line_bytes: int) -> Iterator[Block]:
    """Yield the blocks of a file. `read` returns its next bytes, fewer than `block_bytes` only at the end."""
    context, rest, rest_goes_on = Block(b"", 0, 1, 0, (), range(0)), b"", False
    while True:
        piece = read()
        is_last = len(piece) < block_bytes
        data = rest + piece
        cuts = cut_long_lines(data, max_line_bytes)
        whole = len(data) if is_last else max(data.rfind(b"\n") + 1, cuts[-1] if cuts else 0)
        block = _block_after(context, data[:whole], cuts, goes_on=rest_goes_on, is_last=is_last)
        if block.judged:
            yield block
        if is_last:
            return
        if whole:
            rest_goes_on = bool(cuts) and cuts[-1] == whole
        context, rest = _context_of(block), data[whole:]


def cut_long_lines(data: bytes, max_line_bytes: int) -> list[int]:
    """Return the positions, ascending, at which lines longer than `max_line_bytes` are cut.

    Looks only once in every `max_line_bytes` bytes, so ordinary text costs next to nothing.
    """
    cuts: list[int] = []
    start = 0
    while len(data) - start > max_line_bytes:
        newline = data.rfind(b"\n", start, start + max_line_bytes + 1)
        if newline >= 0:
            start = newline + 1
        else:
            start = _cut_position(data, start, start + max_line_bytes)
            cuts.append(start)
    return cuts


def _cut_position(data: bytes, start: int, end: int) -> int:
    """Return where to cut data[start:end]: after a blank, after a separator, between characters, in this order.

    Looks back at most 256 bytes: no keyword is longer (64 characters of at most 4 bytes).
    """
    low = max(start + 1, end - 256)
    for pattern in (_SPACE, _BREAK):
        found = [match.end() for match in pattern.finditer(data, low, end)]
        if found:
            return found[-1]
    cut = end
    while cut > low and data[cut] & 0xC0 == 0x80:  # inside a UTF-8 character
        cut -= 1
    return cut if cut > low else end


def _block_after(context: Block, data: bytes, cuts: list[int], *, goes_on: bool, is_last: bool) -> Block:
    """Return the block of `data`, which holds whole segments, behind the last segments of the block before."""
    before = context.segments
    continued = list(context.continued)
    if goes_on and before and data:
        continued.append(before)
    continued.extend(
        before + data.count(b"\n", 0, cut) + index + 1 for index, cut in enumerate(cuts) if cut < len(data)
    )
    broken = _with_breaks(data, cuts)
    segments = before + broken.count(b"\n")
    judged = range(max(0, before - 1), segments if is_last else segments - 1)
    return Block(context.text + broken, segments, context.first_line, context.first_segment, tuple(continued), judged)


def _with_breaks(data: bytes, cuts: list[int]) -> bytes:
    """Return `data` with every segment ended by a newline."""
    if cuts:
        starts = [0, *cuts]
        data = b"\n".join(data[start:end] for start, end in zip(starts, [*cuts, len(data)], strict=True))
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _context_of(block: Block) -> Block:
    """Return the last two segments of `block`, as the beginning of the next."""
    first = max(0, block.segments - 2)
    start = 0
    if first:
        start = block.text.rfind(b"\n", 0, block.text.rfind(b"\n", 0, len(block.text) - 1)) + 1
    continued = tuple(ordinal - first for ordinal in block.continued if ordinal > first)
    kept = block.segments - first
    return Block(block.text[start:], kept, block.line(first), block.first_segment + first, continued, range(0))
