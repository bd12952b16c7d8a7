"""The data directory of `groundplane up`: which file is where, and how it is written.

Directories are 0700 and files 0600 whatever the umask. A file is replaced whole or not at all.

    keys/caller.pem, keys/router.pem     private Ed25519 keys: who signs callers' tokens, who signs capabilities
    keys/caller-public.pem               what the router verifies callers with
    keys/public/router-<kid>.pem         what the shards verify the router with
    incarnations.json                    {corpus key: uuid}, each made once
    directory.json                       groundplane.wire.directory.Directory, the router's view of the corpora
    store/  or  store.json               log and snapshots; or {"object_store": URL of the bucket where they lie}
    witness/<corpus key>/<incarnation>.json   how far its log was durable: kept apart from the store, to know of its losses
    work/<corpus key>/                   the shards' working directories, emptied at each start
    logs/<process>.log                   what each process said
    up.lock, up.json                     held, and {"url", "pid"}, while `groundplane up` runs
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from groundplane.errors import InvalidInput

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What `up.json` says: where the router answers, and which process keeps it up."""

    url: str
    pid: int


class DataDirectory:
    """Paths below one data directory."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.keys = self.root / "keys"
        self.public_keys = self.keys / "public"
        self.caller_key = self.keys / "caller.pem"
        self.caller_public_key = self.keys / "caller-public.pem"
        self.router_key = self.keys / "router.pem"
        self.incarnations = self.root / "incarnations.json"
        self.directory = self.root / "directory.json"
        self.store = self.root / "store"
        self.storage = self.root / "store.json"
        self.witness = self.root / "witness"
        self.work = self.root / "work"
        self.logs = self.root / "logs"
        self.lock = self.root / "up.lock"
        self.running = self.root / "up.json"

    def prepare(self) -> None:
        """Make every directory, private to this user. Raises InvalidInput where that cannot be done."""
        with self.named_faults():
            for path in (self.root, self.keys, self.public_keys, self.witness, self.work, self.logs):
                path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
                path.chmod(_DIRECTORY_MODE)

    @contextmanager
    def named_faults(self) -> Iterator[None]:
        """Turn what the file system refuses inside into an InvalidInput that names the file and the cause."""
        try:
            yield
        except OSError as error:
            name = Path(error.filename2 or error.filename or self.root)
            what = name.relative_to(self.root) if name != self.root and name.is_relative_to(self.root) else None
            raise InvalidInput(
                f"data directory {self.root} cannot be used: {f'{what}: ' if what else ''}{error.strerror}: "
                "mend that, or choose another with --data",
                code="data_directory_unusable",
            ) from error

    def witness_of(self, key: str, incarnation: str) -> Path:
        """Return the witness of one incarnation."""
        return self.witness / key / f"{incarnation}.json"

    def log_of(self, process: str) -> Path:
        """Return the log file of a process."""
        return self.logs / f"{process}.log"

    def read_running(self) -> Running | None:
        """Return what runs on this directory, None if nothing says that it does."""
        try:
            return msgspec.json.decode(self.running.read_bytes(), type=Running)
        except (OSError, msgspec.DecodeError):
            return None


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by `content` as a whole, 0600, on disk when this returns."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _FILE_MODE)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    partial.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_witness(path: Path, epoch: int, sequence: int) -> None:
    """Write how far the log of a new incarnation is durable; its shard goes on from there."""
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    write_private(path, msgspec.json.encode({"epoch": epoch, "sequence": sequence}))
