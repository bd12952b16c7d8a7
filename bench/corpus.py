"""Synthetic rows: what a corpus looks like to an index, from a seed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIMENSION = 384
_CENTRES = 200
_SPREAD = 0.8  # a row is its topic's centre plus noise of this length: cosine of two rows of a topic is about 0.6
_QUERY_NOISE = 0.3  # a query lies near one row, so it has true neighbours and the order among them matters
_VOCABULARY = 30_000
_ZIPF_OFFSET = 2.7  # of Mandelbrot's form of Zipf's law: word n is used as 1 / (n + 2.7)
_WORDS = 120
_QUERY_WORDS = 6  # four of the row's own, two of anybody's


class Query(NamedTuple):
    """A question as both legs see it."""

    text: str
    vector: NDArray[np.float32]  # unit length


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table; index i of each belongs together."""

    ids: list[str]
    texts: list[str]
    vectors: NDArray[np.float32]  # (rows, DIMENSION), unit length

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def part(self, start: int, end: int) -> "Rows":
        """Return rows start to end - 1."""
        return Rows(self.ids[start:end], self.texts[start:end], self.vectors[start:end])


class Corpus:
    """Makes rows and queries of one seed. The same calls give the same rows."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._centres = _unit(self._random.standard_normal((_CENTRES, DIMENSION), dtype=np.float32))
        self._words = _vocabulary(self._random)
        weights = 1.0 / (np.arange(_VOCABULARY) + _ZIPF_OFFSET)
        self._shares = np.cumsum(weights / weights.sum())

    def rows(self, count: int, prefix: str) -> Rows:
        """Return `count` new rows with ids `<prefix>-0` and so on."""
        topics = self._random.integers(0, _CENTRES, count)
        vectors = self._near(self._centres[topics], _SPREAD)
        picks = self._pick(count * _WORDS).reshape(count, _WORDS)
        texts = [" ".join(self._words[word] for word in row) for row in picks.tolist()]
        return Rows([f"{prefix}-{index}" for index in range(count)], texts, vectors)

    def queries(self, rows: Rows, count: int) -> list[Query]:
        """Return `count` queries, each near one of `rows` in meaning and in words."""
        chosen = self._random.integers(0, len(rows), count).tolist()
        vectors = self._near(rows.vectors[chosen], _QUERY_NOISE)
        return [Query(self._question(rows.texts[row]), vector) for row, vector in zip(chosen, vectors, strict=True)]

    def _question(self, text: str) -> str:
        own = self._random.choice(text.split(), _QUERY_WORDS - 2, replace=False).tolist()
        return " ".join([*own, *(self._words[word] for word in self._pick(2).tolist())])

    def _pick(self, count: int) -> NDArray[np.int64]:
        places = np.searchsorted(self._shares, self._random.random(count))
        return np.minimum(places, _VOCABULARY - 1)

    def _near(self, points: NDArray[np.float32], distance: float) -> NDArray[np.float32]:
        noise = _unit(self._random.standard_normal(points.shape, dtype=np.float32))
        return _unit(points + np.float32(distance) * noise)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths, dtype=np.float32)


def _vocabulary(random: np.random.Generator) -> list[str]:
    """Return distinct speakable words; frequent ones are short, as in languages."""
    consonants, vowels = list("bcdfghklmnprstvz"), list("aeiou")
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        syllables = 2 + (len(words) > 500) + int(random.integers(0, 2))
        word = "".join(
            consonants[int(random.integers(0, len(consonants)))] + vowels[int(random.integers(0, len(vowels)))]
            for _ in range(syllables)
        )
        words.setdefault(word)
    return list(words)
