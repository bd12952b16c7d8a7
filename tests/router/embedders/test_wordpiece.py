"""Our WordPiece against the tokenizers package, with the same vocabulary."""

import unicodedata
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from groundplane_router.embedders.wordpiece import SPECIAL_TOKENS, WordPiece

VOCABULARY = resources.files("groundplane_router.embedders").joinpath("vocab.txt")

WORDPIECE = WordPiece.bundled()
REFERENCE = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
REFERENCE._tokenizer.encode_special_tokens = True  # control tokens in a text are text, as with ours

ODD_TEXTS = [
    "",
    " \t\r\n ",
    "The pump's pressure (2.5 bar) dropped — restart it!",
    "unaffable embeddings tokenization",
    "naïve café Ångström İstanbul ΣΑΣ ẞtraße",
    "e\u0301 combining a\u0327\u0301",
    "中文字符 mixed 日本語カタカナ 한국어",
    "emoji 😀👩‍👩‍👧 and ❤️",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff",
    "nul\0byte \ufffd replacement \x1c separators \x85 next\u2028line",
    "no\u00a0break thin\u2009space",
    "x" * 100,
    "x" * 101,
    "a" * 300 + " b",
    "0x80070005 ERR_CONN-42 foo_bar.baz@example.org https://a.b/c?d=e#f",
    "$1,234.56 + 5€ × 3 ≤ ½ ²",
    "ﬁ ligature Ⅷ ㍿ ｆｕｌｌｗｉｄｔｈ",
    "العربية हिन्दी ไทย עברית ελληνικά русский",
    "[CLS] hello [SEP] [MASK] [UNK]",
    "\U0001d41a\U0001d41b math bold \U0002f800 compat",
    "`~!@#$%^&*()_+-={}[]|\\:;\"'<>,.?/",
]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_odd_texts_get_the_reference_ids(text):
    """One wrong id moves a vector without any error."""
    assert WORDPIECE.encode(text, max_tokens=1000) == REFERENCE.encode(text).ids


@given(st.text(st.characters(codec="utf-8", max_codepoint=0x2FFF), max_size=60))
def test_any_text_gets_the_reference_ids(text):
    """The model was trained on the reference's ids."""
    theirs, ours = REFERENCE.encode(text).ids, WORDPIECE.encode(text, max_tokens=1000)

    assert ours == theirs or any(_is_newer_than_reference(char) for char in text)


def _is_newer_than_reference(char):
    """The reference's Unicode tables are older: it misses the category of some marks and signs assigned since."""
    framed = f"a{char}b"
    return WORDPIECE.encode(framed, max_tokens=9) != REFERENCE.encode(framed).ids


def test_characters_that_differ_from_the_reference_are_few_and_new():
    """The excuse of the test above must stay a small one."""
    differing = [chr(code) for code in range(0x3000) if _is_newer_than_reference(chr(code))]

    assert len(differing) < 200
    assert all(ord(char) > 0x2FF for char in differing)
    assert {unicodedata.category(char) for char in differing} <= {"Mn", "Mc", "Me", "Cf", "Po", "Ps", "Pe", "Pd", "So"}


@given(st.text(max_size=200), st.integers(2, 40))
def test_cap_keeps_the_front_and_both_special_tokens(text, cap):
    """A cut input must still be one the model was trained on: [CLS] … [SEP]."""
    whole = WORDPIECE.encode(text, max_tokens=10_000)
    capped = WORDPIECE.encode(text, max_tokens=cap)

    assert len(capped) == min(cap, len(whole))
    assert capped[-1] == whole[-1]
    assert capped[:-1] == whole[: len(capped) - 1]


@given(st.text(max_size=200))
def test_count_is_never_below_what_the_model_sees(text):
    """Chunks are sized by the count; were it too low, the model would cut them silently."""
    assert WORDPIECE.count(text) >= len(WORDPIECE.encode(text, max_tokens=10_000)) - SPECIAL_TOKENS


def test_unspellable_word_counts_by_its_length():
    """To other models a long base64 word is hundreds of tokens, though it is one unknown word here."""
    assert WORDPIECE.count("Q" * 5_000) == 2_500


def test_memory_of_words_changes_nothing():
    """A cache must not be seen in the answer."""
    for text in ODD_TEXTS:
        assert WORDPIECE.encode(text, max_tokens=64) == WordPiece.bundled().encode(text, max_tokens=64)
