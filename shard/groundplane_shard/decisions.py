"""What each operation of a batch changes, decided before the batch is logged."""

from groundplane.wire.internal import OperationResult
from groundplane_shard.corpus import Corpus
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredMemoDelete, StoredOperation

_ABSENT = b""

MemoKey = tuple[str, str]


class Decisions:
    """What a batch changes, decided operation by operation in queue order over the corpus's present state."""

    def __init__(self, corpus: Corpus) -> None:
        self.changes: list[StoredOperation] = []
        self._corpus = corpus
        self._documents: dict[str, bytes] = {}
        self._memos: dict[MemoKey, StoredMemo | None] = {}

    def decide(self, operation: StoredOperation) -> OperationResult:
        """Return what `operation` does after all before it; one that changes something joins `changes`."""
        changed = self._changes(operation)
        if changed:
            self.changes.append(operation)
        return OperationResult(changed=changed, chunks=chunk_count(operation))

    def _changes(self, operation: StoredOperation) -> bool:
        match operation:
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

    def _hash_of(self, doc_id: str) -> bytes:
        known = self._documents.get(doc_id)
        return known if known is not None else self._corpus.content_hash(doc_id) or _ABSENT

    def _memo(self, key: MemoKey) -> StoredMemo | None:
        return self._memos[key] if key in self._memos else self._corpus.memo(*key)


def chunk_count(operation: StoredOperation) -> int:
    """Return how many chunks `operation` writes."""
    return len(operation.chunks) if isinstance(operation, StoredDocument) else 0


def size_of(operation: StoredOperation) -> int:
    """Return about how many bytes `operation` adds to a log record."""
    match operation:
        case StoredDocument():
            texts = sum(len(chunk.text) + len(chunk.terms) for chunk in operation.chunks)
            return operation.vectors.nbytes + texts + len(operation.metadata)
        case StoredMemo():
            return len(operation.response)
        case _:
            return len(operation.doc_id) if isinstance(operation, StoredDelete) else len(operation.name)
