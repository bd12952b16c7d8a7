"""BERT's uncased WordPiece: the ids the embedded model expects, and the token counts that chunks are sized by.

Same ids as `BertWordPieceTokenizer` of the tokenizers package (the tests compare them), without its 20 MB and its network
client. One deliberate difference: `[CLS]`, `[SEP]` and their kind in a text are plain text here, so no document can
write a control token. The vocabulary beside this file is that of bert-base-uncased; NOTICE names origin and licence.
Source of the algorithm: Wu et al. 2016, arXiv:1609.08144, and the BERT reference tokenizer (Devlin et al. 2019).
"""

import unicodedata
from collections.abc import Iterator
from importlib import resources
from typing import Final

CLS: Final = "[CLS]"
SEP: Final = "[SEP]"
UNKNOWN: Final = "[UNK]"
SPECIAL_TOKENS: Final = 2
"""Ids that `encode` adds to those of the text: one before, one after."""

MAX_WORD_CHARS: Final = 100
"""A longer word is unknown as a whole, as in the reference."""

UNKNOWN_CHARS_PER_TOKEN: Final = 2
"""How many characters of an unknown word `count` takes for one token: base64 or emoji cost other tokenizers that much."""

_CONTROLS: Final = frozenset({"Cc", "Cf", "Co", "Cs"})
"""Dropped categories. Unassigned characters (Cn) stay: the reference's Unicode tables are older than Python's, so it and
we differ on some 500 characters assigned since, none of which the vocabulary holds."""

_CACHED_WORDS: Final = 100_000
_CACHED_CHARS: Final = 20_000
_IDEOGRAPHS: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""Blocks whose characters are words of their own. The fifth starts at 2B920 in the reference too, not at 2B820."""


class WordPiece:
    """Turns text into token ids. Threads may share one: what it remembers is only ever added to."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._ids = vocabulary
        self._cls, self._sep, self._unknown = vocabulary[CLS], vocabulary[SEP], vocabulary[UNKNOWN]
        self._folded = _FoldedChars()
        self._words: dict[str, tuple[int, ...]] = {}

    @classmethod
    def bundled(cls) -> "WordPiece":
        """Return the tokenizer with the vocabulary of this package; reads 232 KB."""
        lines = resources.files(__package__).joinpath("vocab.txt").read_text(encoding="utf-8").split("\n")
        return cls({token: index for index, token in enumerate(lines) if token})

    def encode(self, text: str, *, max_tokens: int) -> list[int]:
        """Return at most `max_tokens` ids, both special tokens among them; what does not fit is left off the end."""
        ids = [self._cls]
        room = max_tokens - 1
        for word in self._split(text):
            ids.extend(self._pieces(word))
            if len(ids) >= room:
                break
        del ids[room:]
        ids.append(self._sep)
        return ids

    def count(self, text: str) -> int:
        """Return how many tokens `text` has without the special ones; never fewer than `encode` gives.

        A word the vocabulary cannot spell is one id to this model but many to others, so it counts by its length.
        """
        total = 0
        for word in self._split(text):
            pieces = self._pieces(word)
            total += len(pieces) if pieces[0] != self._unknown else -(-len(word) // UNKNOWN_CHARS_PER_TOKEN)
        return total

    def _split(self, text: str) -> list[str]:
        return text.translate(self._folded).split()

    def _pieces(self, word: str) -> tuple[int, ...]:
        known = self._words.get(word)
        if known is None:
            known = tuple(self._spell(word))
            if len(self._words) < _CACHED_WORDS:
                self._words[word] = known
        return known

    def _spell(self, word: str) -> Iterator[int]:
        """Yield the longest entry that starts the rest of `word`, until nothing is left; one unknown if that fails."""
        pieces: list[int] = []
        start = 0
        while start < len(word) <= MAX_WORD_CHARS:
            for end in range(len(word), start, -1):
                piece = self._ids.get(word[start:end] if start == 0 else "##" + word[start:end])
                if piece is not None:
                    pieces.append(piece)
                    start = end
                    break
            else:
                break
        return iter(pieces if start == len(word) else [self._unknown])


class _FoldedChars(dict[int, str]):
    """A table for `str.translate` that works out each character when it first meets it."""

    def __missing__(self, codepoint: int) -> str:
        folded = fold_char(chr(codepoint))
        if len(self) < _CACHED_CHARS:
            self[codepoint] = folded
        return folded


def fold_char(char: str) -> str:
    """Return what one character becomes: nothing, a blank, its lower case without accents, or itself between blanks."""
    if char in "\t\n\r":
        return " "
    if char in "\0\ufffd" or unicodedata.category(char) in _CONTROLS:
        return ""
    if char.isspace():
        return " "
    if any(first <= ord(char) <= last for first, last in _IDEOGRAPHS):
        return f" {unicodedata.normalize('NFD', char)} "
    plain = "".join(part for part in unicodedata.normalize("NFD", char) if unicodedata.category(part) != "Mn")
    return "".join(f" {part} " if _is_punctuation(part) else part for part in plain.lower())


def _is_punctuation(char: str) -> bool:
    return ("!" <= char <= "~" and not char.isalnum()) or unicodedata.category(char).startswith("P")
