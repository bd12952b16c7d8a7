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
Range = tuple[int, int]

CHARS_PER_TOKEN: Final = 16
"""At least one token for so many characters, whatever the counter says: bounds the characters of a chunk."""

HEADING_TOKENS: Final = 60
"""Most tokens that are held free in every chunk for a heading that would stand alone."""

HEADING_CHARS: Final = 200
"""A longer line is no heading: its path would be repeated in every chunk below it."""

MAX_HEADINGS: Final = 20_000
"""Headings of one document that are looked at; a text that is all headings would fill the memory with their paths."""

PATH_SEPARATOR: Final = " > "

PIECE_CHARS: Final = 32 * 1024
"""Longer documents are split piece by piece, without overlap between pieces: the splitter holds the interpreter lock, and
its Markdown parser takes quadratic time for some texts (23 s for 200,000 nested quote marks in one piece, 0.6 s in seven)."""

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
    ranges = _Splitter(text, outline, _Sizer(counter, limit=limits.tokens), limits).ranges()
    return [
        Chunk(start=start, end=end, heading=outline.path_at(start, end), text=text[start:end]) for start, end in ranges
    ]


class Outline:
    """Where the ATX headings of a Markdown text are, and under which of them a place stands."""

    def __init__(self, text: str) -> None:
        """Lines inside code fences, lines longer than `HEADING_CHARS` and what follows `MAX_HEADINGS` are no headings."""
        self._text = text
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._paths: list[tuple[tuple[int, str], ...]] = []
        self.is_markdown = False
        fence: str | None = None
        for line in _LINE.finditer(text):
            if len(self._starts) == MAX_HEADINGS:
                break
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

    def last_start_between(self, low: int, high: int) -> int | None:
        """Return where the last heading begins that begins in (low, high], None without one."""
        last = bisect_right(self._starts, high) - 1
        return self._starts[last] if last >= 0 and self._starts[last] > low else None

    def _add(self, start: int, end: int, *, level: int, title: str) -> None:
        above = self._paths[-1] if self._paths else ()
        self._starts.append(start)
        self._ends.append(end)
        self._paths.append((*(entry for entry in above if entry[0] < level), (level, title)))


class _Sizer:
    """A counter that remembers the texts of one document, and does not count what is too long for a chunk anyway."""

    def __init__(self, counter: TokenCounter, *, limit: int) -> None:
        self._counter = counter
        self._max_chars = limit * CHARS_PER_TOKEN
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if len(text) > self._max_chars:
            return -(-len(text) // CHARS_PER_TOKEN)  # too large whatever the counter says
        size = self._known.get(text)
        if size is None:
            size = max(self._counter(text), -(-len(text) // CHARS_PER_TOKEN))
            self._known[text] = size
        return size


class _Splitter:
    """Finds the ranges of one document's chunks."""

    def __init__(self, text: str, outline: Outline, sizer: _Sizer, limits: ChunkLimits) -> None:
        self._text = text
        self._outline = outline
        self._sizer = sizer
        self._limits = limits

    def ranges(self) -> list[Range]:
        """Return the ranges in order, without a gap."""
        if self._sizer(self._text) <= self._limits.tokens:
            return [(0, len(self._text))]
        found: list[Range] = []
        start = 0
        while start < len(self._text):
            end = self._piece_end(start)
            found += self._split_piece(start, end)
            start = end
        return self._merge_empty(found)

    def _piece_end(self, start: int) -> int:
        """Return where to end a piece of at most `PIECE_CHARS`: before a heading, else a paragraph, line or word."""
        end = start + PIECE_CHARS
        if end >= len(self._text):
            return len(self._text)
        middle = start + PIECE_CHARS // 2
        heading = self._outline.last_start_between(middle, end)
        if heading is not None:
            return heading
        for border in ("\n\n", "\n", " "):
            found = self._text.rfind(border, middle, end)
            if found >= 0:
                return found + len(border)
        return end

    def _split_piece(self, start: int, end: int) -> list[Range]:
        """Return the ranges of one piece; a second pass leaves room for headings where the first left one alone."""
        first = self._split(start, end, tokens=self._limits.tokens)
        lone = [self._sizer(self._text[low:high]) for low, high in first if self._outline.is_heading_only(low, high)]
        fitting = [size for size in lone if size <= min(HEADING_TOKENS, self._limits.tokens // 2)]
        return self._split(start, end, tokens=self._limits.tokens - max(fitting)) if fitting else first

    def _split(self, start: int, end: int, *, tokens: int) -> list[Range]:
        piece = self._text[start:end]
        splitter = MarkdownSplitter if self._outline.is_markdown else TextSplitter
        overlap = min(self._limits.overlap_tokens, tokens - 1)
        parts = splitter.from_callback(self._sizer, tokens, overlap=overlap, trim=False).chunk_indices(piece)
        return _without_contained([(start + offset, start + offset + len(part)) for offset, part in parts])

    def _merge_empty(self, ranges: Sequence[Range]) -> list[Range]:
        """Return `ranges` with every lone heading joined to what follows and blanks to either side, where that fits."""
        merged: list[Range] = []
        for start, end in ranges:
            if merged and (self._says_nothing(*merged[-1]) or self._is_blank(start, end)):
                before = merged[-1][0]
                if self._sizer(self._text[before:end]) <= self._limits.tokens:
                    merged.pop()
                    start = before
            merged.append((start, end))
        return merged

    def _says_nothing(self, start: int, end: int) -> bool:
        return self._is_blank(start, end) or self._outline.is_heading_only(start, end)

    def _is_blank(self, start: int, end: int) -> bool:
        return not self._text[start:end].strip()


def _without_contained(ranges: Sequence[Range]) -> list[Range]:
    """Return `ranges` (ordered) without those that lie inside a neighbour, which overlap makes of short parts."""
    kept: list[Range] = []
    for start, end in ranges:
        while kept and start <= kept[-1][0] and end >= kept[-1][1]:
            kept.pop()
        if not kept or end > kept[-1][1]:
            kept.append((start, end))
    return kept


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"document text has a lone surrogate at character {error.start}: expected Unicode text, send it as UTF-8",
            field="text",
        ) from error
