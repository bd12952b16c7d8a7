"""What the embedders are told at start. Reading the environment is the settings module's business, not this one's."""

from typing import Final, Literal

import msgspec

EMBEDDED_DIMENSION: Final = 384
DEFAULT_DIMENSION: Final = 768

Kind = Literal["none", "embedded", "openai"]
FormatName = Literal["e5", "bge", "nomic", "qwen3", "gemma", "plain", "minilm", "custom"]


class EmbeddingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One embedder and the vector space it writes."""

    kind: Kind = "none"
    """`none`: semantic grounding is off. `embedded`: the model in the process. `openai`: a server at `url`."""

    url: str | None = None
    """Base of a server that speaks /v1/embeddings, with or without that path (`EMBEDDING_URL`)."""

    model: str = ""
    """Model name to ask the server for; some servers accept an empty one."""

    api_key: str | None = None
    """Bearer key of the server; never logged."""

    dimension: int | None = None
    """Length of the index's vectors (`MODEL_EMBEDDING_DIM`); None: 768, or 384 for `embedded`."""

    request_dimensions: int | None = None
    """Length to ask the server for. Only for Matryoshka models: others answer 400."""

    format: FormatName | None = None
    """Which instructions the model was trained with; None: `minilm` for `embedded`, else `plain`."""

    query_template: str | None = None
    """Format `custom` only: query instruction with `{text}`."""

    document_template: str | None = None
    """Format `custom` only: document instruction with `{text}` and perhaps `{title}`."""

    may_cut: bool = False
    """Format `custom` only: the model is a Matryoshka one, so a longer vector may be cut to the index's length."""

    dense_floor: float | None = None
    """Least cosine that counts as a find; None: the format's. Set -1 to switch a format's floor off."""

    connect_timeout_seconds: float = 1.0
    query_timeout_seconds: float = 5.0
    """Budget of one query, retries included."""

    document_timeout_seconds: float = 60.0
    """Budget of one request's documents, retries included."""

    batch_size: int = 32
    """Documents in one request to a server; many servers refuse more."""

    cached_queries: int = 2048
    """Query vectors kept; each takes 4 bytes times `dimension`."""

    threads: int = 2
    """Threads of the embedded model. Not above the CPU limit of the pod: they would wait for each other."""

    model_path: str | None = None
    """Another MiniLM-shaped ONNX file for `embedded`; needs `model_sha256`."""

    model_sha256: str | None = None
    """Lower-case hex digest of the file at `model_path`."""

    def __repr__(self) -> str:
        """Return the fields without the key."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "api_key"}
        return f"EmbeddingSettings({shown}, api_key={'set' if self.api_key else 'unset'})"

    @property
    def index_dimension(self) -> int:
        """Return the length every stored and every query vector must have."""
        return self.dimension or (EMBEDDED_DIMENSION if self.kind == "embedded" else DEFAULT_DIMENSION)
