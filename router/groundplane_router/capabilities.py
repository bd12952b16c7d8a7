"""Capabilities that the router shows to shards: signed once per corpus and right, used until they are due for renewal."""

from typing import Final

import msgspec

from groundplane.process.clock import Clock
from groundplane.tokens import CAPABILITY_RENEW_SECONDS, Right, SigningKey, capability_audience
from groundplane.wire.directory import CorpusEntry

MAX_CACHED: Final = 8_192


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

    def forget(self, corpus: CorpusEntry, right: Right) -> None:
        """Sign anew at the next use: the shard did not take the last one."""
        self._signed.pop((capability_audience(corpus.key, corpus.incarnation), right), None)
