"""The statistics file beside the table: what a flush left there, so that a start need not count it again.

`<directory>/statistics` is a SHA-256 digest (32 bytes) and a msgpack body. It is written after the table was merged and
is part of the directory that is snapshotted; whoever opens the directory compares it with the table's rows. It is
replaced, never changed in place, so that a hard-link copy keeps its own.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from groundplane.errors import CorruptData
from groundplane_shard.search import Totals

FILE_NAME = "statistics"
FORMAT = 1

_DIGEST_BYTES = 32


class TableStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the table after the flush that held records up to `sequence`.

    `dimension` is 0 while there are no vectors. `embedding_id` (32 hex digits) names what made them; None: nothing did
    yet, or software wrote the file that knew of one embedding only. `generation` counts the re-embeddings before this table.
    `has_search_indexes` says whether the table was indexed for the engine `indexed`. `frequencies`: chunks a term occurs in.
    """

    format: int
    sequence: int
    document_sequence: int
    dimension: int
    has_search_indexes: bool
    totals: Totals
    frequencies: dict[str, int]
    embedding_id: str | None = None
    generation: int = 0


def is_unused(directory: Path) -> bool:
    """Whether nothing was ever flushed into `directory`: it is absent or empty."""
    return not directory.exists() or not any(directory.iterdir())


def write_statistics(directory: Path, statistics: TableStatistics) -> None:
    """Replace the file in `directory` in one step."""
    body = msgspec.msgpack.encode(statistics)
    target = directory / FILE_NAME
    staged = directory / f".{FILE_NAME}.new"
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(hashlib.sha256(body).digest() + body)
    staged.replace(target)


def read_statistics(directory: Path) -> TableStatistics:
    """Return the file's content. Raises CorruptData where it is missing, damaged or of another format."""
    try:
        stored = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError as error:
        raise CorruptData("file statistics is missing beside the table: restore a snapshot") from error
    digest, body = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise CorruptData("file statistics does not match its digest: restore a snapshot")
    try:
        statistics = msgspec.msgpack.decode(body, type=TableStatistics)
    except msgspec.MsgspecError as error:
        raise CorruptData("file statistics cannot be read: restore a snapshot") from error
    if statistics.format != FORMAT:
        raise CorruptData(f"file statistics has format {statistics.format}: expected {FORMAT}; restore a snapshot")
    return statistics
