"""Capabilities that the router shows to shards: signed once per corpus and right, used until they are due for renewal.

The key is followed in its file: in a cluster that is a mounted Secret, which the operator replaces when it rotates the key,
after every shard has the new public half. So a rotation needs no restart, and no request is refused because of it.
"""

from pathlib import Path
from typing import Final

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.tokens import CAPABILITY_RENEW_SECONDS, KeyId, Right, SigningKey, capability_audience
from groundplane.wire.directory import CorpusEntry

MAX_CACHED: Final = 8_192
POLL_SECONDS: Final = 2.0


class _Signed(msgspec.Struct, frozen=True):
    header: str
    signed_at: float


class Capabilities:
    """Signs with the router's key; a capability names one incarnation of one corpus and one right."""

    def __init__(self, key: SigningKey, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._signed: dict[tuple[str, Right], _Signed] = {}

    def header(self, corpus: CorpusEntry, right: Right) -> str:
        """Return the `Authorization` value for `right` on `corpus`, valid for at least half a minute."""
        now = self._clock.now()
        audience = capability_audience(corpus.key, corpus.incarnation)
        known = self._signed.get((audience, right))
        if known is not None and 0 <= now - known.signed_at < CAPABILITY_RENEW_SECONDS:
            return known.header
        if len(self._signed) >= MAX_CACHED:
            self._signed.clear()
        header = f"Bearer {self._key.sign_capability(audience, right, now=now)}"
        self._signed[audience, right] = _Signed(header, now)
        return header

    @property
    def key_id(self) -> KeyId:
        """Return the id of the key that signs."""
        return self._key.id

    def use(self, key: SigningKey) -> None:
        """Sign with another key from now on; what the last one signed is shown no more."""
        self._key = key
        self._signed.clear()

    def forget(self, corpus: CorpusEntry, right: Right) -> None:
        """Sign anew at the next use: the shard did not take the last one."""
        self._signed.pop((capability_audience(corpus.key, corpus.incarnation), right), None)


class SigningKeyFile:
    """Follows the file of the signing key. A file that cannot be used changes nothing: the last key stays."""

    def __init__(self, path: Path, capabilities: Capabilities, clock: Clock) -> None:
        self._path = path
        self._capabilities = capabilities
        self._clock = clock
        self._log = Log("router.capabilities")
        self._fault: str | None = None

    def refresh(self) -> None:
        """Read the file and sign with its key if that is another one. Never raises: a fault is logged once."""
        try:
            key = SigningKey.load(self._path)
        except InvalidInput as error:
            self._report(error.message)
            return
        self._fault = None
        replaced = self._capabilities.key_id
        if key.id != replaced:
            self._capabilities.use(key)
            self._log.info("signing_key_replaced", key_id=key.id, replaced=replaced)

    async def run(self) -> None:
        """Refresh for ever, so that another key is in use within seconds."""
        while True:
            await self._clock.sleep(POLL_SECONDS)
            self.refresh()

    def _report(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            self._log.warning("signing_key_not_read", fault=fault, kept=self._capabilities.key_id)
