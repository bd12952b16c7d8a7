"""Finding keywords in the blocks of one file, and choosing the passages that are worth showing.

Text stays UTF-8 bytes from the file to the match. The cost is that of folding and one `find` a keyword: no regular
expression sees the text, and none of it is decoded but the characters beside a match.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from groundplane_router.grep.blocks import Block, read_blocks
from groundplane_router.grep.budget import Budget, GrepLimits
from groundplane_router.grep.excerpt import render_excerpt
from groundplane_router.grep.folding import fold_utf_8, is_word_after, is_word_before
from groundplane_router.grep.keywords import Keyword, Keywords

_SNIFFED_BYTES = 8 << 10
_SHARED = 2  # two passages whose centres are no farther apart show a segment twice


class Passage(NamedTuple):
    """One segment of a file with its two neighbours, and what was found in the three."""

    weight: int
    centre_weight: int  # of the segment alone: among neighbours the one that holds the most is shown
    segment: int  # ordinal in the file
    mask: int
    line: int
    excerpt: str


class Scan(NamedTuple):
    """What one file or block holds: the mask of all keywords in it, and its best passages, best first."""

    seen: int
    passages: list[Passage]


class Needle(NamedTuple):
    """A keyword as what is searched for and the bit it sets in masks."""

    literal: bytes
    bit: int
    keyword: Keyword


def scan_file(read: Callable[[], bytes], keywords: Keywords, budget: Budget) -> Scan:
    """Return what a file holds; nothing for a binary file, which is counted (a NUL byte in its first 8 KiB).

    `read` returns the file's next `block_bytes` bytes, fewer at its end.
    """
    limits = budget.limits
    head = read()
    if b"\0" in head[:_SNIFFED_BYTES]:
        budget.binary_files += 1
        return Scan(0, [])
    again = [head]
    seen, passages = 0, list[Passage]()
    for block in read_blocks(lambda: again.pop() if again else read(), limits.block_bytes, limits.max_line_bytes):
        scan = scan_block(block, keywords, limits)
        seen |= scan.seen
        if scan.passages:
            passages = best_apart([*passages, *scan.passages], limits.max_hits_per_file)
    return Scan(seen, passages)


def scan_block(block: Block, keywords: Keywords, limits: GrepLimits) -> Scan:
    """Return what a block holds."""
    needles = [Needle(keyword.text.encode(), 1 << index, keyword) for index, keyword in enumerate(keywords.items)]
    seen, segments = _locate(fold_utf_8(block.text), needles, keywords)
    centres = _passages(block, segments, keywords)
    best = best_apart(centres, limits.max_hits_per_file)
    return Scan(seen, _with_excerpts(best, block, keywords, limits.max_excerpt_chars))


def best_apart(passages: Iterable[Passage], most: int) -> list[Passage]:
    """Return the best passages, best first, no two of which share a segment: by weight, centre's weight, place."""
    chosen: list[Passage] = []
    for passage in sorted(passages, key=lambda one: (-one.weight, -one.centre_weight, one.segment)):
        if all(abs(passage.segment - other.segment) > _SHARED for other in chosen):
            chosen.append(passage)
            if len(chosen) == most:
                break
    return chosen


def _locate(text: bytes, needles: list[Needle], keywords: Keywords) -> tuple[int, dict[int, int]]:
    """Return the mask of all keywords in `text` and, if they reach the bar together, the mask of each segment."""
    found = [(needle, _next_match(text, needle, 0)) for needle in needles]
    present = [(needle, first) for needle, first in found if first >= 0]
    seen = sum(needle.bit for needle, _ in present)
    segments: dict[int, int] = {}
    if keywords.weight(seen) >= keywords.bar:
        for needle, first in present:
            for segment in _segments_with(text, needle, first):
                segments[segment] = segments.get(segment, 0) | needle.bit
    return seen, segments


def _segments_with(text: bytes, needle: Needle, first: int) -> Iterator[int]:
    """Yield the ordinals, ascending, of the segments in which the keyword begins; it does so at `first` first."""
    segment = counted = 0
    at = first
    while at >= 0:
        segment += text.count(b"\n", counted, at)
        counted = at
        yield segment
        end = text.find(b"\n", at)
        at = _next_match(text, needle, end) if end >= 0 else -1


def _next_match(text: bytes, needle: Needle, start: int) -> int:
    """Return where the keyword next stands as a word, from `start` on; -1 if nowhere."""
    at = text.find(needle.literal, start)
    while at >= 0 and not _stands_as_word(text, at, needle):
        at = text.find(needle.literal, at + 1)
    return at


def _stands_as_word(text: bytes, start: int, needle: Needle) -> bool:
    if needle.keyword.is_anywhere:
        return True
    if is_word_before(text, start):
        return False
    return not (needle.keyword.is_identifier and is_word_after(text, start + len(needle.literal)))


def _passages(block: Block, segments: dict[int, int], keywords: Keywords) -> Iterator[Passage]:
    """Yield a passage, its excerpt still empty, for each judged segment around which the bar is reached."""
    weights: dict[int, int] = {}  # masks repeat
    for segment, own in segments.items():
        mask = own | segments.get(segment - 1, 0) | segments.get(segment + 1, 0)
        for each in (mask, own):
            if each not in weights:
                weights[each] = keywords.weight(each)
        if segment in block.judged and weights[mask] >= keywords.bar:
            yield Passage(weights[mask], weights[own], segment, mask, 0, "")


def _with_excerpts(best: list[Passage], block: Block, keywords: Keywords, max_chars: int) -> list[Passage]:
    """Return the passages with what only the block knows: line number, place in the file, text."""
    if not best:
        return []
    lines = block.text.split(b"\n")[:-1]
    return [
        passage._replace(
            segment=block.first_segment + passage.segment,
            line=block.line(passage.segment),
            excerpt=render_excerpt(lines, passage.segment, block.continued, keywords.of(passage.mask), max_chars),
        )
        for passage in best
    ]
