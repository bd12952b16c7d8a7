"""What shards say of themselves: their status, with an `operate` capability, and why a pod is not ready.

Both are asked in passing: no answer is no error, since a shard that does not answer is something to be reported, not a reason
to stop looking. Every call ends within CALL_SECONDS.
"""

from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.tokens import SigningKey, capability_audience
from groundplane.wire.internal import ShardStatus
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_operator.names import SHARD_PORT

CALL_SECONDS: Final = 3.0
MAX_STATUS_BYTES: Final = 256 * 1024
MAX_DETAIL_CHARACTERS: Final = 256


class ShardAddress(msgspec.Struct, frozen=True):
    """Where a shard answers, and whose it is."""

    endpoint: str
    key: CorpusKey
    incarnation: Incarnation


class Shards:
    """Asks shards over one pool of connections, which the caller opens and closes."""

    def __init__(self, session: aiohttp.ClientSession, signing_key: Callable[[], SigningKey], clock: Clock) -> None:
        """signing_key: gives the operator's key that signs now."""
        self._session = session
        self._signing_key = signing_key
        self._clock = clock
        self._log = Log("operator.shards")

    async def try_status(self, address: ShardAddress) -> ShardStatus | None:
        """Return what the shard says; None if there is no answer, or not one of this incarnation."""
        audience = capability_audience(address.key, address.incarnation)
        token = self._signing_key().sign_capability(audience, "operate", now=self._clock.now())
        body = await self._try_get(f"{address.endpoint}/status", MAX_STATUS_BYTES, {"Authorization": f"Bearer {token}"})
        if body is None or body[0] != 200:
            return None
        try:
            status = msgspec.msgpack.decode(body[1], type=ShardStatus)
        except msgspec.DecodeError:
            self._log.warning("shard_answer_not_read", endpoint=address.endpoint)
            return None
        return status if status.incarnation == address.incarnation else None

    async def try_detail(self, pod_address: str) -> str | None:
        """Return what the /readyz of a pod says while it is not ready; None if it is, or does not answer."""
        host = f"[{pod_address}]" if ":" in pod_address else pod_address
        body = await self._try_get(f"http://{host}:{SHARD_PORT}/readyz", 4 * MAX_DETAIL_CHARACTERS, {})
        if body is None or body[0] == 200:
            return None
        return body[1].decode(errors="replace").strip()[:MAX_DETAIL_CHARACTERS] or None

    async def _try_get(self, url: str, max_bytes: int, headers: dict[str, str]) -> tuple[int, bytes] | None:
        """Return status and at most `max_bytes` of the body; None if there is no answer, or a longer one."""
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout, allow_redirects=False) as answer:
                body = await answer.content.read(max_bytes + 1)
                while len(body) <= max_bytes and (more := await answer.content.read(max_bytes + 1 - len(body))):
                    body += more
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return (answer.status, body) if len(body) <= max_bytes else None
