"""The router's settings: read once from the environment, every fault reported together before anything starts."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from groundplane.analysis import Analyser
from groundplane.api.formats import DNS_LABEL, MEANINGS
from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane.tokens import SigningKey, load_public_key
from groundplane_router.embedders.openai import embeddings_url
from groundplane_router.embedders.settings import EmbeddingSettings, FormatName, Kind
from groundplane_router.fusion import FusionRule, Method
from groundplane_router.grep.engine import try_root

MAX_KEY_FILE_BYTES = 16 * 1024
LogLevel = Literal["debug", "info", "warning", "error"]
DirectoryKind = Literal["file", "kubernetes"]
IdentityKind = Literal["local", "tokenreview", "jwks"]
_FILES = (
    ("GROUNDPLANE_DIRECTORY_FILE", "GROUNDPLANE_DIRECTORY", "file"),
    ("GROUNDPLANE_CALLER_KEY_FILE", "GROUNDPLANE_IDENTITY", "local"),
)
"""A file, the variable that says whether it is read, and the value of that, its default, for which it is."""

_IN_CLUSTER = frozenset({"kubernetes", "tokenreview", "jwks"})
"""Kinds that ask the API server and read no file."""


def _read_key(path: str) -> str:
    try:
        content = Path(path).read_bytes()[:MAX_KEY_FILE_BYTES].decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"embedding key {path} cannot be read as text: expected a file with the key") from error
    if not content:
        raise InvalidInput(f"embedding key {path} is empty: expected a file with the key")
    return content


def parse_namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces of a list such as `agents,search`, sorted; none for an empty text. Raises InvalidInput."""
    names = {name.strip() for name in text.split(",")} if text else set()
    for name in names:
        if not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            raise InvalidInput(f"namespace {name[:64]!r}: expected {MEANINGS[DNS_LABEL]}")
    return tuple(sorted(names))


def _load_caller_key(path: str) -> Ed25519PublicKey:
    return load_public_key(Path(path))


def _load_signing_key(path: str) -> SigningKey:
    return SigningKey.load(Path(path))


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the router is told at start."""

    directory_kind: Annotated[
        DirectoryKind,
        setting("GROUNDPLANE_DIRECTORY", "file, or kubernetes: the corpora are the TenantCorpora of the cluster"),
    ] = "file"
    directory_file: Annotated[
        str | None,
        setting(
            "GROUNDPLANE_DIRECTORY_FILE",
            "directory file: the file that names the corpora, their shards and subjects; re-read when it changes",
        ),
    ] = None
    namespaces: Annotated[
        str,
        setting(
            "GROUNDPLANE_WATCH_NAMESPACES",
            "directory kubernetes: namespaces whose TenantCorpora count, separated by commas; unset: all of them",
            check=parse_namespaces,
        ),
    ] = ""
    identity_kind: Annotated[
        IdentityKind,
        setting(
            "GROUNDPLANE_IDENTITY",
            "local, tokenreview or jwks: callers' tokens are verified with a key, by the API server, or with its keys",
        ),
    ] = "local"
    caller_key_file: Annotated[
        str | None,
        setting(
            "GROUNDPLANE_CALLER_KEY_FILE",
            "identity local: PEM public key that verifies callers' tokens",
            check=_load_caller_key,
        ),
    ] = None
    signing_key_file: Annotated[
        str,
        setting(
            "GROUNDPLANE_SIGNING_KEY_FILE",
            "PEM private Ed25519 key that signs the capabilities shown to shards; re-read when it changes",
            check=_load_signing_key,
        ),
    ]
    kubernetes_host: Annotated[
        str | None, setting("KUBERNETES_SERVICE_HOST", "address of the API server, which Kubernetes gives to every pod")
    ] = None
    kubernetes_port: Annotated[
        int,
        setting("KUBERNETES_SERVICE_PORT", "port of the API server, as Kubernetes gives it too", ge=1, le=65_535),
    ] = 443
    service_account_directory: Annotated[
        str,
        setting(
            "GROUNDPLANE_SERVICE_ACCOUNT_DIRECTORY",
            "directory with token and ca.crt, which show the router and the API server to each other; re-read",
        ),
    ] = "/var/run/secrets/kubernetes.io/serviceaccount"
    host: Annotated[str, setting("GROUNDPLANE_HOST", "address to listen on; 0.0.0.0 in a pod")] = "127.0.0.1"
    port: Annotated[int, setting("GROUNDPLANE_PORT", "port to listen on, 0 to 65535", ge=0, le=65_535)] = 8_080
    embedding_dimension: Annotated[
        int | None,
        setting(
            "MODEL_EMBEDDING_DIM",
            "length of the index's vectors, 1 to 8192; 768 unless set, 384 for the embedded model",
            ge=1,
            le=8_192,
        ),
    ] = None
    embedding_url: Annotated[
        str | None,
        setting(
            "EMBEDDING_URL",
            "base of a server that speaks /v1/embeddings; unset: no server is asked",
            secret=True,  # some hold a password
            check=embeddings_url,
        ),
    ] = None
    corpus_directory: Annotated[
        str | None,
        setting(
            "FACE_DCI_CORPUS_DIR", "directory that the grep tier searches; unset: there is no such tier", check=try_root
        ),
    ] = None
    embedder: Annotated[
        Kind | None,
        setting("GROUNDPLANE_EMBEDDER", "none, embedded or openai; unset: openai if EMBEDDING_URL is set, else none"),
    ] = None
    embedding_model: Annotated[
        str, setting("GROUNDPLANE_EMBEDDING_MODEL", "model name to ask the server for, where it serves several")
    ] = ""
    embedding_api_key_file: Annotated[
        str | None,
        setting(
            "GROUNDPLANE_EMBEDDING_API_KEY_FILE",
            "file with the server's bearer key, where it wants one",
            check=_read_key,
        ),
    ] = None
    embedding_format: Annotated[
        FormatName | None,
        setting(
            "GROUNDPLANE_EMBEDDING_FORMAT",
            "e5, bge, nomic, qwen3, gemma, plain, minilm or custom: the instructions the model was trained with",
        ),
    ] = None
    query_template: Annotated[
        str | None, setting("GROUNDPLANE_EMBEDDING_QUERY_TEMPLATE", "format custom: query instruction with {text}")
    ] = None
    document_template: Annotated[
        str | None,
        setting(
            "GROUNDPLANE_EMBEDDING_DOCUMENT_TEMPLATE",
            "format custom: document instruction with {text} and perhaps {title}",
        ),
    ] = None
    may_cut: Annotated[
        bool,
        setting(
            "GROUNDPLANE_EMBEDDING_MAY_CUT", "format custom: true if longer vectors may be cut (Matryoshka models)"
        ),
    ] = False
    require_semantic: Annotated[
        bool, setting("GROUNDPLANE_REQUIRE_SEMANTIC", "true: not ready until semantic grounding has worked once")
    ] = False
    language: Annotated[
        str,
        setting(
            "GROUNDPLANE_LANGUAGE", "Snowball language of the analyser; the same for router and shards", check=Analyser
        ),
    ] = "english"
    fusion: Annotated[
        Method, setting("GROUNDPLANE_FUSION", "convex or rrf; rrf for models whose cosines lie close together")
    ] = "convex"
    dense_floor: Annotated[
        float | None,
        setting(
            "GROUNDPLANE_DENSE_FLOOR", "least cosine of a find, -1 to 1; unset: the format's; -1: none", ge=-1, le=1
        ),
    ] = None
    term_floor: Annotated[
        float,
        setting(
            "GROUNDPLANE_TERM_FLOOR", "least share of the query's idf that matched terms must carry, 0 to 1", ge=0, le=1
        ),
    ] = 0.5
    deadline_seconds: Annotated[
        float, setting("GROUNDPLANE_DEADLINE_SECONDS", "time in which a question is answered, 0.1 to 60", ge=0.1, le=60)
    ] = 5.0
    index_deadline_seconds: Annotated[
        float,
        setting(
            "GROUNDPLANE_INDEX_DEADLINE_SECONDS",
            "time in which a batch of documents is indexed, 1 to 3600; raise it for slow embedders",
            ge=1,
            le=3_600,
        ),
    ] = 300.0
    max_requests: Annotated[
        int,
        setting(
            "GROUNDPLANE_MAX_REQUESTS",
            "requests answered at once before one more gets 503, at least 1",
            ge=1,
            le=65_536,
        ),
    ] = 256
    max_index_requests: Annotated[
        int,
        setting(
            "GROUNDPLANE_MAX_INDEX_REQUESTS",
            "batches of documents indexed at once; each may hold 8 MiB of text and its vectors",
            ge=1,
            le=1_024,
        ),
    ] = 8
    bodies_mib: Annotated[
        int,
        setting(
            "GROUNDPLANE_BODIES_MIB",
            "MiB of request bodies read at once, all together, before one more gets 503; at least 8",
            ge=8,
            le=65_536,
        ),
    ] = 64
    log_level: Annotated[LogLevel, setting("GROUNDPLANE_LOG_LEVEL", "debug, info, warning or error")] = "info"

    @property
    def embedder_kind(self) -> Kind:
        """Return which embedder to build."""
        return self.embedder or ("openai" if self.embedding_url else "none")


def read_router_settings(environment: Mapping[str, str]) -> RouterSettings:
    """Return the settings of `environment`. Raises InvalidInput that lists every fault, one a line."""
    faults = _combination_faults(environment)
    try:
        settings = read_settings(RouterSettings, environment)
    except InvalidInput as error:
        raise InvalidInput("\n".join([error.message, *faults]), code=error.code) from error
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_settings")
    return settings


def embedding_settings(settings: RouterSettings) -> EmbeddingSettings:
    """Return what the embedder is told, its key read from the file. Raises InvalidInput if that cannot be read."""
    return EmbeddingSettings(
        kind=settings.embedder_kind,
        url=settings.embedding_url,
        model=settings.embedding_model,
        api_key=None if settings.embedding_api_key_file is None else _read_key(settings.embedding_api_key_file),
        dimension=settings.embedding_dimension,
        format=settings.embedding_format,
        query_template=settings.query_template,
        document_template=settings.document_template,
        may_cut=settings.may_cut,
        dense_floor=settings.dense_floor,
        query_timeout_seconds=settings.deadline_seconds,
    )


def fusion_rule(settings: RouterSettings, dense_floor: float | None) -> FusionRule:
    """Return how hits are ranked; `dense_floor` is the embedding service's, which knows the format."""
    return FusionRule(method=settings.fusion, dense_floor=dense_floor, term_floor=settings.term_floor)


def _combination_faults(environment: Mapping[str, str]) -> list[str]:
    """Return what no single variable shows."""
    return [*_embedder_faults(environment), *_source_faults(environment)]


def _embedder_faults(environment: Mapping[str, str]) -> Iterator[str]:
    if environment.get("GROUNDPLANE_EMBEDDER") == "openai" and not environment.get("EMBEDDING_URL"):
        yield "GROUNDPLANE_EMBEDDER=openai: expected EMBEDDING_URL to be set too"
    if environment.get("GROUNDPLANE_EMBEDDER") == "embedded" and environment.get("EMBEDDING_URL"):
        yield "GROUNDPLANE_EMBEDDER=embedded: expected EMBEDDING_URL to be unset, since it would not be asked"
    if environment.get("GROUNDPLANE_EMBEDDING_FORMAT") == "custom":
        names = ("GROUNDPLANE_EMBEDDING_QUERY_TEMPLATE", "GROUNDPLANE_EMBEDDING_DOCUMENT_TEMPLATE")
        missing = [name for name in names if "{text}" not in environment.get(name, "")]
        yield from (f"{name} holds no {{text}}: expected a template, since the format is custom" for name in missing)


def _source_faults(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what a kind of directory or identity needs and does not have, or has and would not read."""
    for variable, kind, reader in _FILES:
        chosen = environment.get(kind) or reader
        is_set = bool(environment.get(variable))
        if chosen == reader and not is_set:
            yield f"{variable} is not set: expected a path, since {kind} is {chosen}"
        if chosen in _IN_CLUSTER and is_set:
            yield f"{variable} is set: expected none, since {kind} is {chosen} and it would not be read"
    if environment.get("GROUNDPLANE_WATCH_NAMESPACES") and environment.get("GROUNDPLANE_DIRECTORY") != "kubernetes":
        yield "GROUNDPLANE_WATCH_NAMESPACES is set: expected none, since GROUNDPLANE_DIRECTORY is not kubernetes"
    asks_api_server = any(environment.get(kind) in _IN_CLUSTER for _, kind, _ in _FILES)
    if asks_api_server and not environment.get("KUBERNETES_SERVICE_HOST"):
        yield "KUBERNETES_SERVICE_HOST is not set: expected the API server's address, as every pod of a cluster has it"
