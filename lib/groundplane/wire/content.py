"""What makes two documents the same: a digest that router and shard compute alike."""

import hashlib

import msgspec


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what is stored of a document. `metadata` is JSON with sorted keys and without white space."""

    text: str
    title: str | None
    uri: str | None
    metadata: bytes
    chunker: str
    analyser_id: str
    embedding_id: str

    def digest(self) -> bytes:
        """Return 32 bytes that differ wherever storing the document again would change what is stored.

        The chunks and their vectors follow from what it covers. Part of the stored format.
        """
        parts = (
            self.analyser_id,
            self.embedding_id,
            self.chunker,
            self.title,
            self.uri,
            self.metadata,
            self.text,
        )
        return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()
