"""Where an installation's corpora lie: below its data directory, or in a bucket that the directory remembers.

`store.json` holds the bucket's URL and no keys: those come from the environment of whoever starts a program.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from groundplane.errors import InvalidInput
from groundplane.local.layout import DataDirectory, write_private
from groundplane.wire.names import CorpusKey


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The store of one installation. `object_store` is a store URL, "" for the directory below the data directory.

    `accepted_losses` are the sequences at which logs end although more was witnessed, for a start that goes on after them.
    """

    object_store: str = ""
    accepted_losses: Mapping[CorpusKey, int] = {}

    def environment(self, data: DataDirectory) -> dict[str, str]:
        """Return the variables that lead a program to the store; one inherited from elsewhere is switched off."""
        return {
            "GROUNDPLANE_STORE_DIRECTORY": "" if self.object_store else str(data.store),
            "GROUNDPLANE_OBJECT_STORE": self.object_store,
        }

    def shown(self, data: DataDirectory) -> str:
        """Return where what was indexed stays, for people."""
        return self.object_store or str(data.root)


class _Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    object_store: str


def read_storage(data: DataDirectory) -> Storage:
    """Return the store that the data directory remembers. Raises InvalidInput for a file that cannot be read."""
    try:
        content = data.storage.read_bytes()
    except FileNotFoundError:
        return Storage()
    try:
        return Storage(object_store=msgspec.json.decode(content, type=_Remembered).object_store)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f'{data.storage} cannot be read: expected {{"object_store": "s3://…"}}; write it again',
            code="corrupt_storage",
        ) from error


def choose_storage(data: DataDirectory, asked: str | None) -> Storage:
    """Return the store to start with, `asked` or the one remembered, and remember it. The data directory must be held.

    Raises InvalidInput if the corpora lie elsewhere: a start on an empty store would hide them.
    """
    remembered = read_storage(data)
    if not asked or asked == remembered.object_store:
        return remembered
    _check_holds_no_keys(asked)
    if remembered.object_store:
        raise _lies_elsewhere(data, remembered.object_store)
    if data.store.is_dir() and any(not path.name.startswith(".") for path in data.store.iterdir()):
        raise _lies_elsewhere(data, str(data.store))
    write_private(data.storage, msgspec.json.encode(_Remembered(object_store=asked)))
    return Storage(object_store=asked)


def _check_holds_no_keys(url: str) -> None:
    """Refuse a URL that may hold a password before it is written anywhere. The shard checks all the rest."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidInput("--object-store is no URL: expected s3://BUCKET[/PREFIX][?endpoint=URL]") from error
    if "@" in parts.netloc or "@" in unquote(parts.query):
        raise InvalidInput(
            "--object-store has credentials in it: expected a URL without; put them into GROUNDPLANE_S3_ACCESS_KEY and "
            "GROUNDPLANE_S3_SECRET_KEY, or name their directory in GROUNDPLANE_S3_CREDENTIALS_DIRECTORY"
        )
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidInput(f"--object-store {url[:256]!r}: expected s3://BUCKET[/PREFIX][?endpoint=URL]")


def _lies_elsewhere(data: DataDirectory, place: str) -> InvalidInput:
    return InvalidInput(
        f"data directory {data.root} keeps its corpora in {place}: expected no other --object-store; leave the option (and "
        f"GROUNDPLANE_OBJECT_STORE) out or choose another --data; if every object was copied, write the new URL into "
        f"{data.storage.name}",
        code="store_elsewhere",
    )
