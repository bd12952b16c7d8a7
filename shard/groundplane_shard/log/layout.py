"""Where the objects of one incarnation lie in the store.

    <corpus key>/<incarnation>/MANIFEST
    <corpus key>/<incarnation>/log/<sequence, 20 digits>                created once, never changed
    <corpus key>/<incarnation>/snapshots/<upload id>/<path>             upload id: <epoch, 20 digits>-<token>, never used before

Twenty digits make the order of names the order of numbers. The epoch in an upload id tells a later writer that the
upload can no longer be published (see `collecting`). Nothing outside this prefix is ever read, written or deleted (I9).
"""

import re
from typing import NewType
from uuid import UUID

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.names import parse_corpus_key

Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)

_TOKEN = re.compile(r"[0-9a-f]{8,32}")
_UPLOAD_ID = re.compile(r"([0-9]{20})-[0-9a-f]{8,32}")
_PATH_PART = re.compile(r"[A-Za-z0-9_.=+@~-]{1,255}")
_MAX_PATH = 700


def is_safe_path(path: str) -> bool:
    """Return whether `path` is relative, in plain characters, and names nothing outside the directory it is put in."""
    parts = path.split("/")
    return len(path) <= _MAX_PATH and all(_PATH_PART.fullmatch(part) and part not in {".", ".."} for part in parts)


def upload_epoch(upload_id: str) -> Epoch | None:
    """Return the epoch of the writer that made this upload id; None if no writer of this format made it."""
    match = _UPLOAD_ID.fullmatch(upload_id)
    return Epoch(int(match[1])) if match else None


class Layout(msgspec.Struct, frozen=True):
    """The names of one incarnation's objects. `incarnation` is a UUID in its canonical text form."""

    corpus_key: str
    incarnation: str

    def __post_init__(self) -> None:
        parse_corpus_key(self.corpus_key)
        if not _is_canonical_uuid(self.incarnation):
            raise InvalidInput(f"incarnation {self.incarnation!r}: expected a lower-case UUID", field="incarnation")

    @property
    def prefix(self) -> str:
        """What every key of this incarnation begins with."""
        return f"{self.corpus_key}/{self.incarnation}/"

    @property
    def manifest(self) -> str:
        """Key of MANIFEST."""
        return f"{self.prefix}MANIFEST"

    @property
    def log(self) -> str:
        """What the keys of all log records begin with."""
        return f"{self.prefix}log/"

    @property
    def snapshots(self) -> str:
        """What the keys of all snapshot files begin with."""
        return f"{self.prefix}snapshots/"

    def record(self, sequence: int) -> str:
        """Key of one log record."""
        return f"{self.prefix}log/{sequence:020d}"

    def object(self, name: str) -> str:
        """Key of an object that MANIFEST names relative to the prefix."""
        return self.prefix + name

    def sequence_of(self, key: str) -> Seq | None:
        """Return the sequence of a listed log key; None for a name that no writer makes."""
        digits = key.removeprefix(self.log)
        return Seq(int(digits)) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None

    def upload_of(self, key: str) -> str:
        """Return the upload id of a listed snapshot key."""
        return key.removeprefix(self.snapshots).partition("/")[0]


def upload_id(epoch: int, token: str) -> str:
    """Return the upload id of a new snapshot; `token` is fresh random hex."""
    if not _TOKEN.fullmatch(token):
        raise InvalidInput("upload token: expected 8 to 32 lower-case hex digits", field="token")
    return f"{epoch:020d}-{token}"


def snapshot_name(upload: str, path: str) -> str:
    """Return the name, relative to the prefix, of a file uploaded under `upload`."""
    return f"snapshots/{upload}/{path}"


def _is_canonical_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
