"""Reading and deleting documents of the caller's own corpus."""

import base64
import binascii
from typing import Final

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.internal import DeleteDocument, WriteRequest
from groundplane.wire.names import format_position
from groundplane.wire.public import (
    DocumentAnswer,
    DocumentList,
    DocumentSummary,
    WriteAnswer,
    check_identifier,
)
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.shards import Shards

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1_000
_MAX_CURSOR_CHARACTERS: Final = 4_096


class Documents:
    """Lists, gets and deletes; the corpus is always the caller's own."""

    def __init__(self, shards: Shards, analyser_id: str) -> None:
        self._shards = shards
        self._analyser_id = analyser_id

    async def list_page(self, grants: Grants, cursor: str, limit: int, deadline: Deadline) -> DocumentList:
        """Return the next `limit` documents by id after `cursor` ("" is the beginning). Raises InvalidInput, Unavailable."""
        page = await self._shards.documents(grants.own, parse_cursor(cursor), limit, deadline)
        rows = [
            DocumentSummary(id=row.doc_id, title=row.title, uri=row.uri, chunks=row.chunks, sequence=row.sequence)
            for row in page.documents
        ]
        return DocumentList(documents=rows, cursor=format_cursor(rows[-1].id) if page.more and rows else None)

    async def get(self, grants: Grants, doc_id: str, deadline: Deadline) -> DocumentAnswer:
        """Return one document as it was indexed. Raises InvalidInput (404 where there is none), Unavailable."""
        check_identifier(doc_id, "id")
        stored = await self._shards.document(grants.own, doc_id, deadline)
        row = stored.document
        if row is None:
            raise InvalidInput("the corpus has no document of this id", code="document_not_found", status=404)
        return DocumentAnswer(
            id=row.doc_id,
            text=stored.text,
            title=row.title,
            uri=row.uri,
            metadata=msgspec.Raw(stored.metadata or b"{}"),
            chunks=row.chunks,
            sequence=row.sequence,
        )

    async def delete(self, grants: Grants, doc_id: str, deadline: Deadline) -> WriteAnswer:
        """Remove exactly this document; `found` says whether there was one. Raises InvalidInput, Unavailable, OutcomeUnknown."""
        check_identifier(doc_id, "id")
        request = WriteRequest(
            incarnation=grants.own.incarnation,
            analyser=self._analyser_id,
            operations=(DeleteDocument(doc_id=doc_id),),
        )
        result = await self._shards.write(grants.own, request, deadline)
        return WriteAnswer(
            position=format_position(grants.own.incarnation, result.sequence), found=result.results[0].changed
        )


def format_cursor(doc_id: str) -> str:
    """Return the opaque cursor that goes on after `doc_id`."""
    return base64.urlsafe_b64encode(doc_id.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> str:
    """Return the document id of a cursor, "" for the beginning. Raises InvalidInput for anything `format_cursor` cannot make."""
    fault = InvalidInput("cursor cannot be read: expected one that a listing returned", field="cursor")
    if len(cursor) > _MAX_CURSOR_CHARACTERS:
        raise fault
    try:
        doc_id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error) as error:
        raise fault from error
    if format_cursor(doc_id) != cursor:
        raise fault
    return doc_id


def parse_limit(text: str) -> int:
    """Return the page size that `text` asks for. Raises InvalidInput outside 1 to 1,000."""
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_PAGE:
        raise InvalidInput(f"limit {text[:32]!r}: expected a number from 1 to {MAX_PAGE}", field="limit")
    return int(text)
