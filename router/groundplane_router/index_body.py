"""What a batch of documents may hold is checked before it becomes objects: a body of 8 MiB would be 200 MB of them.

The parser slices a body without making objects of its values. So each document's metadata is looked at alone, and a document
whose bytes its fields do not account for (a field that stands twice, of which a parser keeps the last) is refused unread.
"""

from typing import Final

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.public import MAX_METADATA_BYTES
from groundplane_router.metadata import check_metadata

SMALL_BODY_BYTES: Final = 64 * 1024
"""Too little to become much: decoding it finds the same faults."""

MAX_RAW_METADATA_BYTES: Final = 6 * MAX_METADATA_BYTES
"""As a caller may write it: each character escaped."""

MAX_BYTES_BETWEEN_FIELDS: Final = 4_096
"""Names, punctuation, and the white space of a document that is written for people."""


class _Body(msgspec.Struct):
    documents: list[msgspec.Raw] = []


class _Fields(msgspec.Struct, frozen=True):
    id: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()
    title: msgspec.Raw = msgspec.Raw()
    uri: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()


_BODY: Final = msgspec.json.Decoder(_Body)
_FIELDS: Final = msgspec.json.Decoder(_Fields)
_ANYTHING: Final = msgspec.json.Decoder()


def check_index_body(body: bytes) -> None:
    """Raise InvalidInput for documents that would become far more objects than they have bytes.

    Says nothing about a body that is no batch of documents: decoding it does.
    """
    if len(body) <= SMALL_BODY_BYTES:
        return
    try:
        documents = _BODY.decode(body).documents
        for number, document in enumerate(documents):
            _check_document(document, f"documents[{number}]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return


def _check_document(document: msgspec.Raw, field: str) -> None:
    fields = _FIELDS.decode(document)
    between = len(bytes(document)) - sum(len(bytes(getattr(fields, name))) for name in _Fields.__struct_fields__)
    if between > MAX_BYTES_BETWEEN_FIELDS:
        raise InvalidInput(
            f"{field} has {between} bytes outside of its fields: expected at most {MAX_BYTES_BETWEEN_FIELDS}; is a field "
            "there twice, or one that is none?",
            field=field,
        )
    size_bytes = len(bytes(fields.metadata))
    if size_bytes > MAX_RAW_METADATA_BYTES:
        raise InvalidInput(
            f"{field}.metadata has {size_bytes} bytes of JSON: expected at most {MAX_METADATA_BYTES}",
            field=f"{field}.metadata",
        )
    if size_bytes:
        check_metadata(_ANYTHING.decode(fields.metadata), f"{field}.metadata")
