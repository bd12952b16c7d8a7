"""Finding keywords in the blocks of one file, and choosing the passages that are worth showing.

ASCII blocks, which most are, are folded and searched as bytes. Others are decoded (bytes that are not UTF-8 become
U+FFFD) and folded by Unicode's rules. The cost is that of one `find` a keyword: no regular expression sees the text.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import AnyStr, NamedTuple

from groundplane_router.grep.blocks import Block, read_blocks
from groundplane_router.grep.budget import Budget, GrepLimits
from groundplane_router.grep.excerpt import render_excerpt
from groundplane_router.grep.keywords import Keyword, Keywords, continues_word, fold

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
    """A keyword as the bit it sets in masks."""

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
    needles = [Needle(1 << index, keyword) for index, keyword in enumerate(keywords.items)]
    if block.text.isascii():
        literals = [(needle, needle.keyword.text.encode()) for needle in needles if needle.keyword.text.isascii()]
        seen, segments = _locate(block.text.lower(), literals, b"\n", keywords)
    else:
        folded = fold(block.text.decode("utf-8", "replace"))
        seen, segments = _locate(folded, [(needle, needle.keyword.text) for needle in needles], "\n", keywords)
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


def _locate(
    text: AnyStr, literals: list[tuple[Needle, AnyStr]], newline: AnyStr, keywords: Keywords
) -> tuple[int, dict[int, int]]:
    """Return the mask of all keywords in `text` and, if they reach the bar together, the mask of each segment."""
    found = [(needle, literal, _next_match(text, literal, needle.keyword, 0)) for needle, literal in literals]
    present = [(needle, literal, first) for needle, literal, first in found if first >= 0]
    seen = sum(needle.bit for needle, _, _ in present)
    segments: dict[int, int] = {}
    if keywords.weight(seen) >= keywords.bar:
        for needle, literal, first in present:
            for segment in _segments_with(text, literal, newline, needle.keyword, first):
                segments[segment] = segments.get(segment, 0) | needle.bit
    return seen, segments


def _segments_with(text: AnyStr, literal: AnyStr, newline: AnyStr, keyword: Keyword, first: int) -> Iterator[int]:
    """Yield the ordinals, ascending, of the segments in which the keyword begins; it does so at `first` first."""
    segment = counted = 0
    at = first
    while at >= 0:
        segment += text.count(newline, counted, at)
        counted = at
        yield segment
        end = text.find(newline, at)
        at = _next_match(text, literal, keyword, end) if end >= 0 else -1


def _next_match(text: AnyStr, literal: AnyStr, keyword: Keyword, start: int) -> int:
    """Return where the keyword next stands as a word, from `start` on; -1 if nowhere."""
    at = text.find(literal, start)
    while at >= 0 and not _stands_as_word(text, at, at + len(literal), keyword):
        at = text.find(literal, at + 1)
    return at


def _stands_as_word(text: AnyStr, start: int, end: int, keyword: Keyword) -> bool:
    if keyword.is_anywhere:
        return True
    if start and continues_word(text[start - 1 : start]):
        return False
    return not (keyword.is_identifier and continues_word(text[end : end + 1]))


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
