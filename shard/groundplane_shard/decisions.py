"""What each operation of a batch changes, decided before the batch is logged; and whether a step of a re-embedding may be taken."""

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.internal import OperationResult
from groundplane_shard.generations import Generations
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredMemoDelete, StoredOperation
from groundplane_shard.switches import Step, Switch

_ABSENT = b""

MemoKey = tuple[str, str]


class Reembedded(msgspec.Struct, frozen=True):
    """A document for the target, made from the version that record `made_from` wrote into the current generation."""

    document: StoredDocument
    made_from: int


Proposed = StoredOperation | Reembedded
"""What a request asks for. Only what it changes becomes part of a record."""


class StepProposal(msgspec.Struct, frozen=True):
    """A step of a re-embedding that a request asks for; `target` is the id of the embedding to come."""

    step: Step
    target: str


class Decisions:
    """What a batch changes, decided operation by operation in queue order over the present state.

    A batch is a `switch` alone, or `changes` with documents of one embedding.
    """

    def __init__(self, generations: Generations) -> None:
        self.changes: list[StoredOperation] = []
        self.embedding_id: str | None = None
        self.switch: Switch | None = None
        self._generations = generations
        self._documents: dict[str, bytes] = {}
        self._reembedded: dict[str, bytes] = {}
        self._memos: dict[MemoKey, StoredMemo | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be logged."""
        return not self.changes and self.switch is None

    def decide(self, operation: Proposed) -> OperationResult:
        """Return what `operation` does after all before it; one that changes something joins `changes`."""
        changed = self._changes(operation)
        if changed:
            self.changes.append(_stored(operation))
        return OperationResult(changed=changed, chunks=chunk_count(operation))

    def _changes(self, operation: Proposed) -> bool:
        match operation:
            case Reembedded(document, made_from):
                return self._changes_target(document, made_from)
            case StoredDocument(doc_id=doc_id, content_hash=content_hash):
                changed = self._hash_of(doc_id) != content_hash
                self._documents[doc_id] = content_hash
            case StoredDelete(doc_id):
                changed = self._hash_of(doc_id) != _ABSENT
                self._documents[doc_id] = _ABSENT
            case StoredMemo(name, fingerprint):
                changed = self._memo((name, fingerprint)) != operation
                self._memos[name, fingerprint] = operation
            case StoredMemoDelete(name, fingerprint):
                changed = self._memo((name, fingerprint)) is not None
                self._memos[name, fingerprint] = None
        return changed

    def _changes_target(self, document: StoredDocument, made_from: int) -> bool:
        """Whether the target takes `document`: it lacks it, and the version that it was made from still counts."""
        doc_id, target = document.doc_id, self._generations.target
        entry = self._generations.current.entry(doc_id)
        if target is None or doc_id in self._documents or entry is None or entry.sequence != made_from:
            return False
        known = self._reembedded.get(doc_id) or target.content_hash(doc_id)
        self._reembedded[doc_id] = document.content_hash
        return known != document.content_hash

    def _hash_of(self, doc_id: str) -> bytes:
        known = self._documents.get(doc_id)
        return known if known is not None else self._generations.current.content_hash(doc_id) or _ABSENT

    def _memo(self, key: MemoKey) -> StoredMemo | None:
        return self._memos[key] if key in self._memos else self._generations.current.memo(*key)


def check_embedding(generations: Generations, embedding_id: str | None) -> None:
    """Raise InvalidInput (`embedding_mismatch`) if documents of this embedding belong to no generation (any more)."""
    known = generations.of_embedding(embedding_id).made.embedding_id
    if embedding_id not in (None, known):
        raise InvalidInput(
            f"vectors of embedding {embedding_id}: expected {known}, with which this corpus was written",
            code="embedding_mismatch",
            field="embedding_id",
            status=409,
        )


def decide_step(generations: Generations, proposal: StepProposal) -> Switch | None:
    """Return the step to log; None if it was taken before. Raises InvalidInput (409) for one that cannot be taken now.

    Codes: `reindex_conflict` (another re-embedding is under way, or this one is not), `reindex_incomplete`.
    """
    current, target = generations.current, generations.target
    current_id, target_id = current.made.embedding_id, target.made.embedding_id if target is not None else None
    is_done = {
        "begin": proposal.target in (current_id, target_id),
        "switch": target is None and proposal.target == current_id,
        "abandon": target is None,
    }
    if is_done[proposal.step]:
        return None
    is_mine = target_id == (None if proposal.step == "begin" else proposal.target)
    if not is_mine:
        raise _refused(
            f"re-embedding under way is to {target_id}: expected {proposal.target}; finish or abandon it first",
            "conflict",
        )
    if proposal.step == "switch" and target is not None:
        done, wanted = target.view().totals.documents, current.view().totals.documents
        if done != wanted:
            raise _refused(f"{done} of {wanted} documents are re-embedded: expected all of them", "incomplete")
    return Switch(step=proposal.step, current=current_id, target=proposal.target)


def _refused(message: str, code: str) -> InvalidInput:
    return InvalidInput(message, code=f"reindex_{code}", status=409)


def _stored(operation: Proposed) -> StoredOperation:
    return operation.document if isinstance(operation, Reembedded) else operation


def chunk_count(operation: Proposed) -> int:
    """Return how many chunks `operation` writes."""
    stored = _stored(operation)
    return len(stored.chunks) if isinstance(stored, StoredDocument) else 0


def size_of(operation: Proposed) -> int:
    """Return about how many bytes `operation` adds to a log record."""
    stored = _stored(operation)
    match stored:
        case StoredDocument():
            texts = sum(len(chunk.text) + len(chunk.terms) for chunk in stored.chunks)
            return stored.vectors.nbytes + texts + len(stored.metadata)
        case StoredMemo():
            return len(stored.response)
        case _:
            return len(stored.doc_id) if isinstance(stored, StoredDelete) else len(stored.name)
