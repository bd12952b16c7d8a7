"""Which corpora exist and who may use them: one state at a time, kept current from a file, or from the cluster (`kubernetes`).

What cannot be read or contradicts itself changes nothing: the last good state stays, and a log line says why.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.directory import Access, CorpusEntry, Directory
from groundplane.wire.names import PLATFORM_KEY, Scope, corpus_key, parse_corpus_key, parse_incarnation

POLL_SECONDS: Final = 0.5
READY_STATE: Final = "ready"
MAX_DIRECTORY_BYTES: Final = 64 * 1024 * 1024


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """What one subject may reach: its own corpus with some access, and the platform's to read.

    `platform` is None where none is declared, and for subjects of the platform corpus, whose own it is.
    """

    own: CorpusEntry
    access: frozenset[Access]
    platform: CorpusEntry | None

    @property
    def scope(self) -> Scope:
        """Return the scope under which the own corpus appears in answers."""
        return scope_of(self.own)


def scope_of(corpus: CorpusEntry) -> Scope:
    """Return `platform` for the platform's corpus, else `tenant`."""
    return Scope.PLATFORM if corpus.key == PLATFORM_KEY else Scope.TENANT


class DirectoryState:
    """One consistent directory, indexed by subject. Immutable."""

    def __init__(self, directory: Directory) -> None:
        """Raises InvalidInput if two corpora claim one key, incarnation or subject, or an entry contradicts itself."""
        for corpus in directory.corpora:
            check_entry(corpus)
        _check_unique("key", (corpus.key for corpus in directory.corpora))
        _check_unique("incarnation", (corpus.incarnation for corpus in directory.corpora))
        _check_unique("subject", (grant.subject.name for corpus in directory.corpora for grant in corpus.grants))
        self.corpora = directory.corpora
        self.platform = next((corpus for corpus in directory.corpora if corpus.key == PLATFORM_KEY), None)
        self._grants = {
            grant.subject.name: self._grants_of(corpus, frozenset(grant.access))
            for corpus in directory.corpora
            for grant in corpus.grants
        }

    def grants_of(self, subject: str) -> Grants | None:
        """Return what `subject` may reach, or None if it belongs to no corpus."""
        return self._grants.get(subject)

    def _grants_of(self, corpus: CorpusEntry, access: frozenset[Access]) -> Grants:
        platform = None if corpus.key == PLATFORM_KEY else self.platform
        return Grants(own=corpus, access=access, platform=platform)


class LiveDirectory(Protocol):
    """Holds the directory in force and keeps it current."""

    @property
    def state(self) -> DirectoryState:
        """Return the directory in force; without corpora until it `is_loaded`."""

    @property
    def is_loaded(self) -> bool:
        """Return whether there has been a good state."""

    @property
    def age_seconds(self) -> float:
        """Return for how long nobody has confirmed the state; before there is one, for how long it was waited for."""

    @property
    def fault_count(self) -> int:
        """Return how many faults keep what stands there from being taken as it is."""

    async def run(self) -> None:
        """Keep the state current for ever."""


class DirectoryFile:
    """Watches the directory file and holds the last good state of it."""

    def __init__(self, path: Path, clock: Clock, *, on_change: Callable[[DirectoryState], None] | None = None) -> None:
        """on_change: called with each new state, after it is in force."""
        self._path = path
        self._clock = clock
        self._on_change = on_change
        self._log = Log("router.directory")
        self._seen: tuple[int, ...] | None = None
        self._fault: str | None = None
        self._state = DirectoryState(Directory(corpora=()))
        self._confirmed_at = clock.monotonic()
        self.is_loaded = False

    @property
    def state(self) -> DirectoryState:
        """Return the directory in force; without corpora until a good file has been read."""
        return self._state

    @property
    def age_seconds(self) -> float:
        """Return for how long the file has not been there to confirm the state."""
        return self._clock.monotonic() - self._confirmed_at

    @property
    def fault_count(self) -> int:
        """Return 1 if the file that is there cannot be taken."""
        return int(self._fault is not None)

    def refresh(self) -> None:
        """Read the file if it is another one than last time. Never raises: a fault is logged once and changes nothing."""
        try:
            stamp = _stamp_of(self._path)
            if stamp != self._seen:
                self._take(_parse_directory(self._path.read_bytes()))
                self._seen = stamp
            self._fault = None
            self._confirmed_at = self._clock.monotonic()
        except (OSError, InvalidInput) as error:
            self._report(error)

    async def run(self) -> None:
        """Refresh for ever, so that a change is in force within a second."""
        while True:
            self.refresh()
            await self._clock.sleep(POLL_SECONDS)

    def _take(self, state: DirectoryState) -> None:
        self._state = state
        self.is_loaded = True
        self._log.info("directory_loaded", corpora=len(state.corpora))
        if self._on_change:
            self._on_change(state)

    def _report(self, error: OSError | InvalidInput) -> None:
        fault = error.message if isinstance(error, InvalidInput) else type(error).__name__
        if fault != self._fault:
            self._fault = fault
            self._log.warning("directory_not_loaded", fault=fault, kept_corpora=len(self._state.corpora))


def _stamp_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size


def _parse_directory(content: bytes) -> DirectoryState:
    if len(content) > MAX_DIRECTORY_BYTES:
        raise InvalidInput(f"directory has {len(content)} bytes: expected at most {MAX_DIRECTORY_BYTES}")
    try:
        directory = msgspec.json.decode(content, type=Directory)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"directory cannot be decoded: {str(error)[:256]}") from error
    return DirectoryState(directory)


def check_entry(corpus: CorpusEntry) -> None:
    """Raise InvalidInput if `corpus` contradicts itself."""
    parse_incarnation(corpus.incarnation)
    parse_corpus_key(corpus.key)
    if corpus.tenant == "" or (corpus.tenant is not None and corpus.key != corpus_key(corpus.tenant)):
        raise InvalidInput(f"directory entry {corpus.name!r} has key {corpus.key!r}: not the one of its tenant")
    if corpus.endpoint is not None and not _is_endpoint(corpus.endpoint):
        raise InvalidInput(f"directory entry {corpus.name!r} has another kind of endpoint: expected http://host:port")
    _check_unique("subject", (grant.subject.name for grant in corpus.grants))


def _is_endpoint(text: str) -> bool:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    is_plain = not (url.query or url.fragment or url.username or url.password)
    return url.scheme in {"http", "https"} and bool(url.hostname) and port != 0 and is_plain


def _check_unique(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise InvalidInput(f"directory names {what} {value!r} twice: a {what} belongs to one corpus")
        seen.add(value)
