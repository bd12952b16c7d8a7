"""The text shown for a hit: its segment and the two beside it, as they stand in the file, bounded."""

from bisect import bisect_left
from collections.abc import Collection, Sequence

from groundplane_router.grep.folding import fold
from groundplane_router.grep.keywords import Keyword

_CUT = "…"


def render_excerpt(
    segments: Sequence[bytes], centre: int, continued: Collection[int], keywords: Sequence[Keyword], max_chars: int
) -> str:
    """Return segments centre-1 to centre+1, at most `max_chars` characters; `continued` go on with the one before.

    What is too long is cut around the first keyword in it, two thirds of the room for the centre.
    """
    around = range(max(0, centre - 1), min(len(segments), centre + 2))
    texts = [_shown(segments[ordinal]) for ordinal in around]
    if sum(map(len, texts)) + len(texts) > max_chars:
        rooms = [max_chars * 2 // 3 if ordinal == centre else max_chars // 6 - 1 for ordinal in around]
        texts = [cut_around(text, _first(text, keywords), room) for text, room in zip(texts, rooms, strict=True)]
    excerpt = texts[0]
    for ordinal, text in zip(around[1:], texts[1:], strict=True):
        excerpt += text if ordinal in continued else f"\n{text}"
    return excerpt.strip("\n")


def cut_around(text: str, at: int, max_chars: int) -> str:
    """Return at most `max_chars` characters of `text`, with a third of them before position `at`."""
    if len(text) <= max_chars:
        return text
    room = max(1, max_chars - 2 * len(_CUT))
    start = max(0, min(at - room // 3, len(text) - room))
    end = start + room
    return (_CUT if start else "") + text[start:end] + (_CUT if end < len(text) else "")


def _shown(segment: bytes) -> str:
    return segment.decode("utf-8", "replace").rstrip("\r").lstrip("\ufeff")


def _first(text: str, keywords: Sequence[Keyword]) -> int:
    """Return where in `text` the first keyword begins, 0 if none does."""
    folded = fold(text)
    found = [at for keyword in keywords if (at := folded.find(keyword.text)) >= 0]
    return unfolded_position(text, min(found), len(folded)) if found else 0


def unfolded_position(text: str, folded_position: int, folded_length: int) -> int:
    """Return the position in `text` of a position in `fold(text)`: folding can lengthen (ß becomes ss)."""
    if folded_length == len(text):
        return folded_position
    return bisect_left(range(len(text)), folded_position, key=lambda length: len(fold(text[:length])))
