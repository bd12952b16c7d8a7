"""The public keys of a mounted directory, read again when it changes, so that a rotation needs no restart.

Kubernetes replaces the files of a ConfigMap all at once. A directory that cannot be read as keys changes nothing: the keys
read last stay in force, and a log line says so once. A removed key is refused from the next verification on; a capability
verified before lives on in `access` for the rest of its minute.
"""

from pathlib import Path
from typing import TypeAlias

from groundplane.errors import InvalidInput
from groundplane.process.logs import Log
from groundplane.tokens import Capability, VerifyingKeys

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]


class MountedKeys:
    """The keys that are in force now."""

    def __init__(self, directory: Path) -> None:
        """Raises InvalidInput if the directory holds no keys."""
        self._directory = directory
        self._log = Log("shard.keys")
        self._stamp = _stamp_of(directory)
        self._keys = VerifyingKeys.load(directory)

    @property
    def ids(self) -> list[str]:
        """Return the ids of the keys in force, sorted: what this shard reports during a rotation."""
        return self._current().ids

    def verify_capability(self, token: str, audience: str, *, now: float) -> Capability:
        """Return the capability that `token` is for `audience`. Raises Denied (401), with one text for every cause."""
        return self._current().verify_capability(token, audience, now=now)

    def _current(self) -> VerifyingKeys:
        """Return the keys as the files have them now; one look at the directory if nothing changed."""
        stamp = _stamp_of(self._directory)
        if stamp == self._stamp:
            return self._keys
        self._stamp = stamp
        try:
            self._keys = VerifyingKeys.load(self._directory)
            self._log.info("keys_read", key_ids=self._keys.ids)
        except InvalidInput as error:
            self._log.warning("keys_not_read", fault=error.message, kept=self._keys.ids)
        return self._keys


def _stamp_of(directory: Path) -> Stamp:
    """Return what changes whenever a key file does; of a directory that is away, nothing."""
    try:
        files = [(path.name, path.stat()) for path in sorted(directory.glob("*.pem"))]
    except OSError:
        return ()
    return tuple((name, status.st_mtime_ns, status.st_ino, status.st_size) for name, status in files)
