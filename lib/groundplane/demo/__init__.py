"""The judged demo corpus: three small handbooks, questions with judgments, and questions that they cannot answer.

Everything was written for this project: companies, rules and doses are invented, and nothing here is advice. Scopes are
`platform` (the internal agent platform of a group of companies), `acme` (pumps and heat exchangers) and `globex`
(veterinary clinics). The files of `corpora/` have the BEIR layout (`_id`, `title`, `text`, `metadata`), so
`groundplane index` reads them as they are. `grep/` holds runbooks for the keyword tier: no tenant's words stand there.

Document ids begin with their scope; judgments name a document `<scope>/<id>` and grade it 1 (touches the question),
2 (answers a part) or 3 (answers it). Where platform and tenant contradict each other, the tenant's own rule has the
higher grade. What the questions are made to show, by kind, is said in `DemoQuestion`; the constants are the questions of
`make demo`. The document that one tenant has and the other must never get is `SECRET_DOCUMENT`, acme's lowest prices.
"""

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

Tenant = Literal["acme", "globex"]
Scope = Literal["platform", "acme", "globex"]
Kind = Literal["same", "conflict", "tenant", "platform", "identifier", "paraphrase"]

TENANTS: tuple[Tenant, ...] = ("acme", "globex")
SCOPES: tuple[Scope, ...] = ("platform", "acme", "globex")

SAME_QUESTION = "Up to which amount may a manager approve a refund?"
"""Both tenants answer it, from `acme-refunds` (2,000) and `globex-refunds` (150)."""

TENANT_QUESTION = "How often is the oil in a KP-40 changed?"
"""Only acme's own corpus answers it (`acme-kp40-service`)."""

PLATFORM_QUESTION = "How do I rotate a service token?"
"""The platform's handbook answers it to every tenant (`platform-rotate-keys`)."""

SECRET_QUESTION = "What is the lowest price for the KP-40 in the dairy tenders?"  # noqa: S105  (a question, no password)
"""acme is answered from `SECRET_DOCUMENT`; globex must never see that document."""

SECRET_DOCUMENT = "acme-price-floor"  # noqa: S105  (an id, no password)
"""Id of a document of acme that no other tenant may get, by search or by id."""

MEMO_QUESTION = "How many days of holiday do I have?"
"""The demo stores an approved answer to it as a memo, so that it costs no model call."""

NOTHING_QUESTION = "Who painted the ceiling of the Sistine Chapel?"
"""No corpus says anything about it, and no keyword of it stands in `grep/`."""

GREP_QUESTION = "How do I drain the deferred queue before I restart relay-1?"
"""Its words stand in `grep/mail-relay.txt` and in no corpus."""


class DemoDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a `corpus.jsonl`. `text` is plain text or Markdown; metadata holds topic, kind and revised (a date)."""

    id: str = msgspec.field(name="_id")
    title: str
    text: str
    metadata: dict[str, str]


class DemoQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question of one tenant with its judgments: `<scope>/<id>` of each relevant document to a grade, 1 to 3.

    kind: `same` (both tenants ask it and get different answers), `conflict` (the tenant's rule overrides the
    platform's), `tenant` and `platform` (which corpus answers), `identifier` (a code or part number that keyword
    search finds and vectors miss or confuse), `paraphrase` (shares no content word with its answer: only vectors).
    """

    id: str = msgspec.field(name="_id")
    tenant: Tenant
    text: str
    kind: Kind
    relevant: dict[str, int]


class DemoUnanswerable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question about nothing that `tenant` or the platform has written down; the right answer is no hit at all."""

    id: str = msgspec.field(name="_id")
    tenant: Tenant
    text: str


Line = TypeVar("Line", DemoDocument, DemoQuestion, DemoUnanswerable)


def load_documents(scope: Scope) -> Sequence[DemoDocument]:
    """Return the documents of one scope in the order of their file."""
    return _decode_lines(_root() / "corpora" / scope / "corpus.jsonl", DemoDocument)


def load_questions() -> Sequence[DemoQuestion]:
    """Return the judged questions of both tenants."""
    return _decode_lines(_root() / "questions.jsonl", DemoQuestion)


def load_unanswerable() -> Sequence[DemoUnanswerable]:
    """Return the questions of both tenants that nothing in the collection answers."""
    return _decode_lines(_root() / "unanswerable.jsonl", DemoUnanswerable)


def corpus_path(scope: Scope) -> Path:
    """Return the directory of one scope's `corpus.jsonl`, for `groundplane index`. Needs an unzipped installation."""
    return Path(str(_root() / "corpora" / scope))


def grep_path() -> Path:
    """Return the directory for `FACE_DCI_CORPUS_DIR`. Needs an unzipped installation."""
    return Path(str(_root() / "grep"))


def _root() -> Traversable:
    return files(__name__)


def _decode_lines(path: Traversable, line_type: type[Line]) -> Sequence[Line]:
    decoder = msgspec.json.Decoder(line_type)
    return tuple(decoder.decode_lines(path.read_bytes()))
