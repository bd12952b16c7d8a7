"""LanceDB's errors become ours by what the receiver does about them."""

import errno

import pytest

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.table_errors import translated


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        pytest.param(
            RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), structural.rs:191:9"),
            Unavailable,
            id="disk-full-in-lance",
        ),
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), Unavailable, id="disk-full-in-a-copy"),
        pytest.param(
            RuntimeError("lance error: Not found: table/data/1.lance, local.rs:273:40"), CorruptData, id="missing"
        ),
        pytest.param(
            RuntimeError("lance error: LanceError(IO): Generic LocalFileSystem error: failed to fill whole buffer"),
            CorruptData,
            id="truncated",
        ),
        pytest.param(ValueError("Table 'chunks' was not found"), CorruptData, id="no-manifest"),
        pytest.param(ValueError("No field named nothing. Not found: column"), ValueError, id="wrong-query-is-a-bug"),
    ],
)
def test_errors_are_told_apart_by_their_remedy(raised, expected):
    """A full disk is waited for, broken files are restored, a bug is neither."""
    with pytest.raises(expected) as caught, translated():
        raise raised

    assert caught.value is raised or caught.value.__cause__ is raised
