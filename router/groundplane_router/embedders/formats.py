"""Embedding formats: the words a model wants around a query and a document, and what its vectors allow.

A template is part of the vector space. Changing one changes every vector, so its digest is part of the embedding identity.
Placeholders are replaced literally; braces in a text mean nothing. Sources: the model cards of each family.
"""

import hashlib
from typing import Final, Literal

import msgspec

from groundplane.errors import InvalidInput
from groundplane_router.embedders.settings import EmbeddingSettings

Purpose = Literal["query", "document"]
"""A query and a document are embedded with different instructions, and queries go first."""

TEXT: Final = "{text}"
TITLE: Final = "{title}"

RETRIEVAL_TASK: Final = "Given a question, retrieve passages that answer it"


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How one model family is spoken to."""

    name: str
    query: str
    document: str
    untitled: str = ""
    """What stands for `{title}` where a document has none."""

    may_cut: bool = False
    """The first n values of a vector are a vector too (Matryoshka training, Kusupati et al. 2022, arXiv:2205.13147)."""

    dense_floor: float | None = None
    """Cosine below which a neighbour is none; None: the model's cosines have no such line."""

    def render_query(self, text: str) -> str:
        """Return the text to embed for a query."""
        return self.query.replace(TEXT, text)

    def render_document(self, title: str, text: str) -> str:
        """Return the text to embed for a chunk; a format without `{title}` leaves the title out.

        A line that holds only the title goes where there is none.
        """
        shown = title or self.untitled
        template = self.document if shown else self.document.replace(f"{TITLE}\n", "")
        parts = [part.replace(TITLE, shown) for part in template.split(TEXT)]
        return text.join(parts).strip()

    @property
    def templates_digest(self) -> str:
        """Return 16 hex digits that change with either template."""
        return hashlib.sha256(msgspec.json.encode([self.query, self.document, self.untitled])).hexdigest()[:16]


PRESETS: Final = (
    Format(name="e5", query="query: {text}", document="passage: {title}\n{text}"),
    Format(
        name="bge",
        query="Represent this sentence for searching relevant passages: {text}",
        document="{title}\n{text}",
    ),
    Format(name="nomic", query="search_query: {text}", document="search_document: {title}\n{text}", may_cut=True),
    Format(
        name="qwen3",
        query=f"Instruct: {RETRIEVAL_TASK}\nQuery:{TEXT}",  # no blank after the colon, as in the model card
        document="{title}\n{text}",
        may_cut=True,
    ),
    Format(
        name="gemma",
        query="task: search result | query: {text}",
        document="title: {title} | text: {text}",
        untitled="none",
        may_cut=True,
    ),
    Format(name="plain", query="{text}", document="{title}\n{text}"),
    Format(name="minilm", query="{text}", document="{title}\n{text}", dense_floor=0.35),
)


def select_format(settings: EmbeddingSettings) -> Format:
    """Return the format that `settings` name, its floor replaced where they say so. Raises InvalidInput."""
    name = settings.format or ("minilm" if settings.kind == "embedded" else "plain")
    chosen = _custom_format(settings) if name == "custom" else next(preset for preset in PRESETS if preset.name == name)
    if settings.dense_floor is None:
        return chosen
    return msgspec.structs.replace(chosen, dense_floor=settings.dense_floor if settings.dense_floor > -1 else None)


def _custom_format(settings: EmbeddingSettings) -> Format:
    templates = {"query_template": settings.query_template, "document_template": settings.document_template}
    for field, template in templates.items():
        if template is None or TEXT not in template:
            raise InvalidInput(
                f"embedding format custom: {field} is {template!r}, expected text with {TEXT}", field=field
            )
    return Format(
        name="custom",
        query=settings.query_template or TEXT,
        document=settings.document_template or TEXT,
        may_cut=settings.may_cut,
    )
