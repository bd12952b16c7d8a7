"""What MANIFEST fixes about a corpus for good: its analyser and its embedding identity.

Checked before this process takes over, so that one with wrong settings leaves the corpus to the writer that serves it
and raises no epoch, and once more by what MANIFEST says afterwards.
"""

import msgspec

from groundplane.errors import CorruptData, Unavailable
from groundplane.wire.internal import EmbeddingIdentity
from groundplane_shard.log import Manifest


def check_analyser(manifest: Manifest, analyser_id: str) -> None:
    """Raise Unavailable (`analyser_mismatch`) if the corpus was written with another analyser than this process has."""
    found = manifest.analyser_id
    if found not in (None, analyser_id):
        raise Unavailable(
            f"this corpus was analysed by {found}: expected {analyser_id}; "
            "set GROUNDPLANE_LANGUAGE to the language it was written with",
            code="analyser_mismatch",
        )


def stored_embedding(manifest: Manifest) -> EmbeddingIdentity | None:
    """Return the identity that the first write fixed, None before it. Raises CorruptData for one of another format."""
    if not manifest.embeddings:
        return None
    try:
        return msgspec.convert(manifest.embeddings[-1], EmbeddingIdentity)
    except msgspec.ValidationError as error:
        raise CorruptData(
            f"embedding identity in MANIFEST cannot be read: {str(error)[:256]}; use the software that wrote it",
            code="unsupported_format",
        ) from error


def check_log(embedding_ids: set[bytes], embedding: EmbeddingIdentity | None) -> None:
    """Raise CorruptData if log records name an embedding that MANIFEST does not: vectors of two models never mix (I19)."""
    known = set() if embedding is None else {bytes.fromhex(embedding.id)}
    foreign = embedding_ids - known
    if foreign:
        expected = "none" if embedding is None else embedding.id
        raise CorruptData(
            f"log names embedding {min(foreign).hex()}: expected {expected}, as MANIFEST says; restore a snapshot"
        )
