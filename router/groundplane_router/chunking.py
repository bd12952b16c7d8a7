"""Documents to chunks that a model can take whole.

Every character of the document is in at least one chunk: the chunks' ranges, in order, have no gap, so the document can be
put together again from them. Neighbours overlap by up to `overlap_tokens`, so a sentence at a border is whole in one of them.
Sizes are the embedder's own token counts; a run of characters that it takes for few tokens or none (blanks, base64) counts
by its length.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from semantic_text_splitter import MarkdownSplitter, TextSplitter

from groundplane.errors import InvalidInput

TokenCounter = Callable[[str], int]

CHARS_PER_TOKEN: Final = 16
"""At least one token for so many characters, whatever the counter says: bounds the characters of a chunk."""

HEADING_TOKENS: Final = 60
"""Most tokens that are held free in every chunk for a heading that would stand alone."""

HEADING_CHARS: Final = 200
"""A longer line is no heading: its path would be repeated in every chunk below it."""

PATH_SEPARATOR: Final = " > "

_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(\S.*?)[ \t]*#*[ \t]*$")
_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)")
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


class ChunkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a chunk, in tokens of the counter."""

    tokens: int = 220
    """Most tokens of a chunk, its overlap included; the rest of a 256-token model is for title and instruction."""

    overlap_tokens: int = 30


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a document: `text` is its characters from `start` up to `end` (code points)."""

    start: int
    end: int
    heading: str
    """Headings the chunk begins under, outermost first, such as `Pumps > Restart`; empty without any."""

    text: str


def chunk(text: str, counter: TokenCounter, limits: ChunkLimits | None = None) -> list[Chunk]:
    """Return the chunks of `text` in order; none for an empty text.

    Pure; 8 MiB take seconds, so large documents belong in a thread. Raises InvalidInput for text that is not Unicode.
    """
    limits = limits or ChunkLimits()
    _check_unicode(text)
    if not text:
        return []
    outline = Outline(text)
    sizer = _Sizer(counter)
    ranges = [(0, len(text))] if sizer(text) <= limits.tokens else _split(text, sizer, limits, outline)
    return [
        Chunk(start=start, end=end, heading=outline.path_at(start, end), text=text[start:end]) for start, end in ranges
    ]


class Outline:
    """Where the ATX headings of a Markdown text are, and under which of them a place stands."""

    def __init__(self, text: str) -> None:
        """Lines inside code fences and lines longer than `HEADING_CHARS` are no headings."""
        self._text = text
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._paths: list[tuple[tuple[int, str], ...]] = []
        self.is_markdown = False
        fence: str | None = None
        for line in _LINE.finditer(text):
            content = line.group().rstrip("\r\n")
            if mark := _FENCE.match(content):
                self.is_markdown = True
                fence = mark[1] if fence is None else (None if mark[1] == fence else fence)
            elif fence is None and len(content) <= HEADING_CHARS and (heading := _HEADING.match(content)):
                self.is_markdown = True
                self._add(line.start(), line.end(), level=len(heading[1]), title=heading[2])

    def path_at(self, start: int, end: int) -> str:
        """Return the headings above the first text between `start` and `end`, those that stand there included."""
        last = bisect_right(self._starts, start) - 1
        position = start if last < 0 else max(start, self._ends[last])
        while last + 1 < len(self._starts) and self._starts[last + 1] < end:
            if self._text[position : self._starts[last + 1]].strip():
                break
            last += 1
            position = self._ends[last]
        return PATH_SEPARATOR.join(title for _, title in self._paths[last]) if last >= 0 else ""

    def is_heading_only(self, start: int, end: int) -> bool:
        """Return whether nothing but headings (one at least) and blanks stands between `start` and `end`."""
        position = start
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[index] >= end or self._text[position : self._starts[index]].strip():
                break
            position = min(self._ends[index], end)
        return position > start and not self._text[position:end].strip()

    def _add(self, start: int, end: int, *, level: int, title: str) -> None:
        above = self._paths[-1] if self._paths else ()
        self._starts.append(start)
        self._ends.append(end)
        self._paths.append((*(entry for entry in above if entry[0] < level), (level, title)))


class _Sizer:
    """A counter that remembers the texts of one document and never counts a long text for nothing."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        size = self._known.get(text)
        if size is None:
            size = max(self._counter(text), -(-len(text) // CHARS_PER_TOKEN))
            self._known[text] = size
        return size


def _split(text: str, sizer: _Sizer, limits: ChunkLimits, outline: Outline) -> list[tuple[int, int]]:
    """Return the ranges of the chunks; a second pass leaves room for headings where the first left one alone."""
    splitter = MarkdownSplitter if outline.is_markdown else TextSplitter

    def ranges(tokens: int) -> list[tuple[int, int]]:
        overlap = min(limits.overlap_tokens, tokens - 1)
        made = splitter.from_callback(sizer, tokens, overlap=overlap, trim=False).chunk_indices(text)
        return _without_contained([(start, start + len(part)) for start, part in made])

    first = ranges(limits.tokens)
    lone = [sizer(text[start:end]) for start, end in first if outline.is_heading_only(start, end)]
    fitting = [size for size in lone if size <= min(HEADING_TOKENS, limits.tokens // 2)]
    if not fitting:
        return first
    return _merge_headings(text, ranges(limits.tokens - max(fitting)), sizer, limits, outline)


def _without_contained(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `ranges` (ordered) without those that lie inside a neighbour, which overlap makes of short parts."""
    kept: list[tuple[int, int]] = []
    for start, end in ranges:
        while kept and start <= kept[-1][0] and end >= kept[-1][1]:
            kept.pop()
        if not kept or end > kept[-1][1]:
            kept.append((start, end))
    return kept


def _merge_headings(
    text: str, ranges: Sequence[tuple[int, int]], sizer: _Sizer, limits: ChunkLimits, outline: Outline
) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in ranges:
        if merged and outline.is_heading_only(*merged[-1]) and sizer(text[merged[-1][0] : end]) <= limits.tokens:
            start = merged.pop()[0]
        merged.append((start, end))
    return merged


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"document text has a lone surrogate at character {error.start}: expected Unicode text, send it as UTF-8",
            field="text",
        ) from error
