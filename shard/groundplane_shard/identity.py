"""What MANIFEST says about a corpus: its analyser, fixed for good, and the embedding identities that its log may name.

Checked before this process takes over, so that one with wrong settings leaves the corpus to the writer that serves it
and raises no epoch, and once more by what MANIFEST says afterwards.
"""

import msgspec

from groundplane.errors import CorruptData, Unavailable
from groundplane.wire.internal import EmbeddingIdentity
from groundplane_shard.generations import Generations
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


def stored_embeddings(manifest: Manifest) -> dict[str, EmbeddingIdentity]:
    """Return the identities by id, oldest first. Raises CorruptData for one of another format."""
    try:
        found = [msgspec.convert(embedding, EmbeddingIdentity) for embedding in manifest.embeddings]
    except msgspec.ValidationError as error:
        raise CorruptData(
            f"embedding identity in MANIFEST cannot be read: {str(error)[:256]}; use the software that wrote it",
            code="unsupported_format",
        ) from error
    return {embedding.id: embedding for embedding in found}


def check_embeddings(generations: Generations, manifest: Manifest) -> None:
    """Raise CorruptData if log or snapshot name an embedding that MANIFEST does not: vectors of two models never mix (I19)."""
    known = stored_embeddings(manifest)
    for corpus in (generations.current, generations.target):
        if corpus is not None and corpus.made.embedding_id not in (None, *known):
            raise CorruptData(
                f"log names embedding {corpus.made.embedding_id}: expected one of {', '.join(known) or 'none'}, as "
                "MANIFEST says; restore a snapshot"
            )
