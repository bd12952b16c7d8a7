"""From a question to the keywords that are looked for, and how many of them make a hit.

A keyword is found, letter case folded (Unicode), where it stands at the start of a word: `pump` in "Pumps", `cat` not in
"concatenate". An identifier (`E-4012`, `foo_bar`, `a@b.c`) must also end where a word ends. Han and Kana are written
without blanks, so runs of them become pairs of characters that are found anywhere.

The bar: with one or two keywords all of them, with more at least half, never more than five, within three neighbouring
lines. An identifier is no chance word, so it weighs as much as the bar: alone it makes a hit, and it ranks first.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

import msgspec

from groundplane_router.grep.folding import continues_word, fold

MAX_KEYWORDS: Final = 32
MAX_KEYWORD_CHARS: Final = 64
_MAX_BAR: Final = 5
_MIN_IDENTIFIER_CHARS: Final = 4  # letters and digits; "10.5" and "v1.2" are chance words

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # Kana, Han
_JOINERS: Final = frozenset("-_./:@#+")
_TOKEN_SHAPE = re.compile("w+(?:j+w+)*|u+")
_WORD_SHAPE = re.compile("w+")

STOP_WORDS: Final = frozenset(re.findall(r"\w+", """
    a about after again all also am an and any are aren as at be because been before being between both but by can
    cannot could couldn did didn do does doesn doing don done during each either else ever every few find for from
    further get give given had hadn has hasn have haven having he her here hers him his how i if in into is isn it its
    itself just let like ll make many may me might mine more most much must my need no nor not now of off on once one
    only or other our ours out over own please re same shall she should shouldn show so some such tell than that the
    their theirs them then there these they this those through to too under until up us use used using ve very via vs
    was wasn we were weren what when where which while who whom whose why will with within without won would wouldn yes
    you your yours
"""))  # fmt: skip


class Keyword(msgspec.Struct, frozen=True):
    """One literal to look for, in folded text."""

    text: str
    is_identifier: bool = False  # ends where a word ends, and weighs as much as the bar
    is_anywhere: bool = False  # part of a script without blanks: no word start to wait for


class Keywords(msgspec.Struct, frozen=True):
    """The keywords of one question, in its order, distinct, at most 32. Bit i of a mask means keyword i."""

    items: tuple[Keyword, ...]

    @property
    def bar(self) -> int:
        """The least weight of a hit."""
        count = len(self.items)
        return count if count <= 2 else min((count + 1) // 2, _MAX_BAR)

    def weight(self, mask: int) -> int:
        """Return how much the keywords of `mask` weigh: one each, an identifier as much as the bar."""
        bar = self.bar
        return sum(bar if keyword.is_identifier else 1 for keyword in self.of(mask))

    def of(self, mask: int) -> list[Keyword]:
        """Return the keywords of `mask`, in the question's order."""
        return [keyword for index, keyword in enumerate(self.items) if mask >> index & 1]


def parse_keywords(question: str) -> Keywords:
    """Return what is worth looking for in `question`; none if it has only stop words and single letters."""
    found: dict[str, Keyword] = {}
    for token in _runs(fold(unicodedata.normalize("NFC", question)), _TOKEN_SHAPE):
        for keyword in _keywords_of(token):
            if len(found) == MAX_KEYWORDS:
                return Keywords(tuple(found.values()))
            found.setdefault(keyword.text, keyword)
    return Keywords(tuple(found.values()))


def _runs(text: str, shape: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts of `text` whose characters' kinds, one letter each, match `shape`."""
    kinds = "".join(map(_kind, text))
    return (text[match.start() : match.end()] for match in shape.finditer(kinds))


def _kind(character: str) -> str:
    if _UNSPACED.match(character):
        return "u"
    if continues_word(character):
        return "w"
    return "j" if character in _JOINERS else " "


def _keywords_of(token: str) -> Iterator[Keyword]:
    if _kind(token[0]) == "u":
        pairs = [token[at : at + 2] for at in range(len(token) - 1)] or [token]
        yield from (Keyword(pair, is_anywhere=True) for pair in pairs)
    elif _is_whole(token):
        cut = token[:MAX_KEYWORD_CHARS]
        yield Keyword(cut, is_identifier=cut == token and _is_identifier(token))
    else:
        words = (word[:MAX_KEYWORD_CHARS] for word in _runs(token, _WORD_SHAPE))
        yield from (Keyword(word) for word in words if _says_something(word))


def _is_whole(token: str) -> bool:
    """Say whether the token is looked for as it stands: it has a digit, or is joined as only names are."""
    has_digit = any(character.isdigit() for character in token)
    return (has_digit and len(token) > 1) or "_" in token or "@" in token


def _is_identifier(token: str) -> bool:
    """Say whether a whole token names one thing: letters with digits, or parts that are joined; not a bare number."""
    return not token.isdigit() and sum(map(str.isalnum, token)) >= _MIN_IDENTIFIER_CHARS


def _says_something(word: str) -> bool:
    return word not in STOP_WORDS and (len(word) > 1 or not word.isascii())
