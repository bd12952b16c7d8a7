"""Templates: literal, complete, and part of the vector space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane_router.embedders.formats import PRESETS, Format, select_format
from groundplane_router.embedders.settings import EmbeddingSettings

BY_NAME = {preset.name: preset for preset in PRESETS}


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("e5", "query: Q", "passage: T\nD"),
        ("bge", "Represent this sentence for searching relevant passages: Q", "T\nD"),
        ("nomic", "search_query: Q", "search_document: T\nD"),
        ("qwen3", "Instruct: Given a question, retrieve passages that answer it\nQuery:Q", "T\nD"),
        ("gemma", "task: search result | query: Q", "title: T | text: D"),
        ("plain", "Q", "T\nD"),
        ("minilm", "Q", "T\nD"),
    ],
)
def test_each_family_gets_its_own_words(name, query, document):
    """A model asked without its instruction finds worse, and nothing says so."""
    assert BY_NAME[name].render_query("Q") == query
    assert BY_NAME[name].render_document("T", "D") == document


@pytest.mark.parametrize(("name", "document"), [("e5", "passage: D"), ("plain", "D")])
def test_untitled_document_has_no_empty_line(name, document):
    """The model card knows no blank line there."""
    assert BY_NAME[name].render_document("", "D") == document


def test_untitled_document_of_gemma_says_none():
    """That is what the model was trained with."""
    assert BY_NAME["gemma"].render_document("", "D") == "title: none | text: D"


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
@given(text=st.text(), title=st.text())
def test_placeholders_in_a_text_mean_nothing(preset, text, title):
    """Documents about templates exist; braces must neither fail nor be replaced."""
    hostile = "{text}{title}{0}{x!r}" + text

    assert hostile in preset.render_query(hostile)
    assert hostile.strip() in preset.render_document(title, hostile)


def test_title_with_a_placeholder_is_not_replaced_by_the_text():
    """Replacing one after the other would put the text into the title."""
    assert BY_NAME["gemma"].render_document("{text}", "D") == "title: {text} | text: D"


def test_only_matryoshka_models_may_be_cut():
    """Cutting a vector of any other model loses up to a third of its quality."""
    assert {preset.name for preset in PRESETS if preset.may_cut} == {"nomic", "qwen3", "gemma"}


def test_only_minilm_has_a_floor():
    """A floor is measured for one model; another's cosines mean something else."""
    assert {preset.name: preset.dense_floor for preset in PRESETS if preset.dense_floor is not None} == {"minilm": 0.35}


def test_digest_changes_with_either_template():
    """A changed template is another vector space: it must be seen in the embedding identity."""
    base = Format(name="a", query="q {text}", document="d {text}")
    others = [
        Format(name="a", query="Q {text}", document="d {text}"),
        Format(name="a", query="q {text}", document="D {text}"),
        Format(name="a", query="q {text}d", document=" {text}"),
        Format(name="a", query="q {text}", document="d {text}", untitled="none"),
    ]

    assert len({format_.templates_digest for format_ in [base, *others]}) == 5
    assert base.templates_digest == Format(name="b", query="q {text}", document="d {text}").templates_digest


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EmbeddingSettings(kind="embedded"), "minilm"),
        (EmbeddingSettings(kind="openai"), "plain"),
        (EmbeddingSettings(kind="openai", format="e5"), "e5"),
    ],
    ids=["embedded", "openai", "named"],
)
def test_format_follows_the_embedder_unless_named(settings, expected):
    """The quick start needs no setting."""
    assert select_format(settings).name == expected


def test_custom_format_is_what_the_settings_say():
    """Any model can be used without a change of code."""
    settings = EmbeddingSettings(
        format="custom", query_template="find {text}", document_template="{title}: {text}", may_cut=True
    )

    chosen = select_format(settings)

    assert chosen.render_query("x") == "find x"
    assert chosen.render_document("t", "x") == "t: x"
    assert chosen.may_cut


@pytest.mark.parametrize(
    "templates",
    [
        {},
        {"query_template": "{text}"},
        {"document_template": "{text}"},
        {"query_template": "no place", "document_template": "{text}"},
        {"query_template": "{text}", "document_template": "{title}"},
    ],
    ids=["neither", "no-document", "no-query", "query-without-text", "document-without-text"],
)
def test_custom_format_without_a_place_for_the_text_is_refused(templates):
    """Every text would get the same vector."""
    with pytest.raises(InvalidInput, match="embedding format custom"):
        select_format(EmbeddingSettings(format="custom", **templates))


@pytest.mark.parametrize(("override", "floor"), [(None, 0.35), (0.5, 0.5), (-1.0, None)], ids=["unset", "set", "off"])
def test_floor_can_be_moved_and_switched_off(override, floor):
    """The floor is an addition of ours: who does not want it must be able to say so."""
    assert select_format(EmbeddingSettings(kind="embedded", dense_floor=override)).dense_floor == floor
