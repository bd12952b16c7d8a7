"""What a re-embedding has still to do, in pages: stored texts that the target lacks."""

from groundplane.wire.internal import PendingDocument
from groundplane_shard.corpus import Corpus
from groundplane_shard.generations import Generations
from groundplane_shard.view import View

EXAMINED_DOCUMENTS = 500
PAGE_BYTES = 64 * 1024


async def pending_documents(
    generations: Generations, after: str, chunker: str
) -> tuple[list[PendingDocument], str | None]:
    """Return documents with an id above `after` that are to be made, and where the next page begins; None: there is none.

    A document is to be made if the target does not hold it, or holds it as cut by another chunker. A page ends with the
    document that makes it 64 KiB of text, or when 500 were looked at: it may hold none although others follow.
    """
    current, target = generations.current, generations.target
    if target is None:
        return [], None
    view = current.view()
    rows, more = current.documents(view, after, EXAMINED_DOCUMENTS)
    found: list[PendingDocument] = []
    size_bytes = 0
    for row in rows:
        entry = target.entry(row.doc_id)
        if entry is not None and entry.chunker == chunker:
            continue
        document = await _pending(current, view, row.doc_id)
        found.append(document)
        size_bytes += len(document.text.encode())
        if size_bytes >= PAGE_BYTES:
            return found, row.doc_id
    return found, rows[-1].doc_id if more else None


async def _pending(corpus: Corpus, view: View, doc_id: str) -> PendingDocument:
    document = await corpus.document(view, doc_id)
    if document is None:
        raise KeyError(doc_id)  # the view lists it
    row = document.row
    return PendingDocument(row.doc_id, document.text, row.title, row.uri, document.metadata, row.sequence)
