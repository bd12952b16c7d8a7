"""Which passages of a whole search come first.

Order: weight (distinct keywords, an identifier as much as the bar), then rarity of those keywords over the files, then
path and line. The score is built so that it sorts the same way: (weight + rarity's share) / (most weight + 1).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from groundplane_router.grep.keywords import Keywords
from groundplane_router.grep.scan import Passage, Scan

_KEPT = 2_048  # places, per sorting out; done when twice as many have come together


class GrepHit(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a file where enough of the keywords stand together."""

    file: str
    """Path beneath the root, `/` between components."""
    line: int
    """Line number from 1."""
    context: str
    """That line and the ones beside it, as written, bounded."""
    keywords: tuple[str, ...]
    """Those found there, folded, in the question's order."""
    score: float
    """In (0, 1], higher is better, compares only within one answer."""


class Place(NamedTuple):
    """A passage and its file."""

    path: str
    passage: Passage


class Found:
    """The passages of one search, and in how many of its files each keyword stands."""

    def __init__(self, keywords: Keywords) -> None:
        self._keywords = keywords
        self._files = 0
        self._files_with = [0] * len(keywords.items)
        self._places: list[Place] = []

    def add(self, path: str, scan: Scan) -> None:
        """Take in what one file holds."""
        self._files += 1
        for index in range(len(self._files_with)):
            self._files_with[index] += scan.seen >> index & 1
        self._places.extend(Place(path, passage) for passage in scan.passages)
        if len(self._places) > 2 * _KEPT:
            self._places = self._sorted()[:_KEPT]

    def best(self, k: int) -> tuple[GrepHit, ...]:
        """Return the best `k` places, best first."""
        rarities = self._rarities()
        return tuple(
            GrepHit(
                file=place.path,
                line=place.passage.line,
                context=place.passage.excerpt,
                keywords=tuple(keyword.text for keyword in self._keywords.of(place.passage.mask)),
                score=self._score(place.passage, rarities),
            )
            for place in self._sorted()[:k]
        )

    def _sorted(self) -> list[Place]:
        rarities = self._rarities()
        return sorted(
            self._places, key=lambda place: (-self._score(place.passage, rarities), place.path, place.passage.line)
        )

    def _score(self, passage: Passage, rarities: Sequence[float]) -> float:
        share = sum(rarity for index, rarity in enumerate(rarities) if passage.mask >> index & 1) / sum(rarities)
        most = self._keywords.weight((1 << len(rarities)) - 1)
        return round((passage.weight + share) / (most + 1), 6)

    def _rarities(self) -> list[float]:
        """Return for each keyword how rare it is: log(1 + files / (1 + files with it)), above 0."""
        return [math.log(1 + (1 + self._files) / (1 + with_it)) for with_it in self._files_with]
