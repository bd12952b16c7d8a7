"""Text without differences of letter case, as characters and, much faster, as UTF-8 bytes."""

import unicodedata
from typing import Final

_ASCII: Final = bytes(range(128))
_MAX_REPLACED: Final = 16  # each costs a pass over the text; scripts with more capitals are folded as a whole
_MAX_CHARACTER_BYTES: Final = 4


def fold(text: str) -> str:
    """Return `text` without differences of letter case: STRASSE and Straße become one. Folds character by character."""
    return text.casefold()


def fold_utf_8(text: bytes) -> bytes:
    """Return the folded text; bytes that are no UTF-8 stay or become U+FFFD, and are part of no word either way.

    Most text has few characters beyond ASCII that folding changes; replacing only those is what makes it fast.
    """
    if text.isascii():
        return text.lower()
    beyond = set(text.translate(None, _ASCII).decode("utf-8", "replace"))
    changed = sorted(character for character in beyond if fold(character) != character)
    if len(changed) > _MAX_REPLACED:
        return fold(text.decode("utf-8", "replace")).encode()
    folded = text.lower()
    for character in changed:
        folded = folded.replace(character.encode(), fold(character).encode())
    return folded


def is_word_before(text: bytes, position: int) -> bool:
    """Say whether the character that ends at `position` belongs to a word."""
    last = text[max(0, position - 1) : position]
    if last.isascii():
        return last.isalnum()
    return continues_word(text[max(0, position - _MAX_CHARACTER_BYTES) : position].decode("utf-8", "replace")[-1:])


def is_word_after(text: bytes, position: int) -> bool:
    """Say whether the character that begins at `position` belongs to a word."""
    return continues_word(text[position : position + _MAX_CHARACTER_BYTES].decode("utf-8", "replace")[:1])


def continues_word(character: str) -> bool:
    """Say whether a character (none at an edge) belongs to a word beside it: letters, digits, and marks on them."""
    if character.isalnum():
        return True
    return not character.isascii() and unicodedata.category(character).startswith("M")
