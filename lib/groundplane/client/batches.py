"""Cutting documents into requests that the router takes: bounded in count and in bytes."""

from collections.abc import Iterable, Iterator

import msgspec

from groundplane.client.options import ClientOptions
from groundplane.wire.public import DocumentInput


def cut_batches(documents: Iterable[DocumentInput], options: ClientOptions) -> Iterator[list[DocumentInput]]:
    """Yield `documents` in order in batches of at most `batch_documents` and about `batch_bytes` encoded bytes.

    A document that is larger alone makes a batch of its own; an id that came before in the batch begins a new one,
    because within one request the order of two versions would not be defined.
    """
    batch: list[DocumentInput] = []
    ids: set[str] = set()
    size_bytes = 0
    for document in documents:
        document_bytes = len(msgspec.json.encode(document)) + 1
        is_full = len(batch) >= options.batch_documents or size_bytes + document_bytes > options.batch_bytes
        if batch and (is_full or document.id in ids):
            yield batch
            batch, ids, size_bytes = [], set(), 0
        batch.append(document)
        ids.add(document.id)
        size_bytes += document_bytes
    if batch:
        yield batch
