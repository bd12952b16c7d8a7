"""The signing keys in force: read from their Secrets at the start, made where there are none, rotated while we run."""

from collections.abc import Mapping
from typing import Final

from groundplane.errors import Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.tokens import KeyId, Role, SigningKey
from groundplane_operator.cluster import Cluster
from groundplane_operator.keys import (
    SECRET_NAMES,
    KeyRing,
    new_ring,
    parse_secret,
    public_files,
    render_secret,
    try_next_step,
)
from groundplane_operator.queue import Key

STEP_SECONDS: Final = 30.0
ROLES: Final[tuple[Role, ...]] = ("router", "operator")


class KeyStore:
    """Both rings, and which keys each shard has reported."""

    def __init__(self, cluster: Cluster, namespace: str, rotate_seconds: float, clock: Clock) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._rotate_seconds = rotate_seconds
        self._clock = clock
        self._log = Log("operator.keys")
        self._rings: dict[Role, KeyRing] = {}
        self._reported: dict[Key, frozenset[KeyId]] = {}

    async def load(self) -> None:
        """Read both Secrets, making those that do not exist. Raises CorruptData, Unavailable, Denied."""
        for role in ROLES:
            self._rings[role] = await self._read_or_make(role)

    @property
    def signing_key(self) -> SigningKey:
        """Return the operator's key that signs now."""
        return self._rings["operator"].signing

    def public_files(self) -> Mapping[str, str]:
        """Return the public keys as every corpus's ConfigMap holds them."""
        return public_files(self._rings.values())

    def report(self, key: Key, key_ids: frozenset[str]) -> None:
        """Remember which keys the running shard of a corpus accepts; none if it did not answer."""
        self._reported[key] = frozenset(KeyId(each) for each in key_ids)

    def forget(self, key: Key) -> None:
        """Leave a corpus out of account whose shard does not run: at its start it reads what is published then."""
        self._reported.pop(key, None)

    async def run(self) -> None:
        """Take the steps of rotations for ever. A step that fails is taken again: the Secret is the whole state."""
        while True:
            await self._clock.sleep(STEP_SECONDS)
            for role in ROLES:
                try:
                    await self._step(role)
                except Unavailable as error:
                    self._log.warning("key_step_failed", role=role, code=error.code, message=error.message)

    async def _step(self, role: Role) -> None:
        """Take the next step of one ring's rotation, on the Secret as it is now."""
        live = await self._cluster.get("Secret", self._namespace, SECRET_NAMES[role])
        if live is None:
            self._log.error("key_secret_missing", role=role, secret=SECRET_NAMES[role])
            live = await self._cluster.create(render_secret(self._rings[role], self._namespace))
        ring = self._rings[role] = parse_secret(role, live)
        after = try_next_step(ring, self._reported.values(), rotate_seconds=self._rotate_seconds, now=self._clock.now())
        if after is None:
            return
        rendered = render_secret(after, self._namespace)
        gone = {name: None for name in live["data"] if name not in rendered["data"]}
        change = {
            "data": {**rendered["data"], **gone},
            "metadata": {"annotations": rendered["metadata"]["annotations"]},
        }
        if await self._cluster.patch(live, change) is not None:
            self._rings[role] = after
            published = [each.id for each in after.published]
            self._log.info("key_step", role=role, signing=after.signing.id, published=published)

    async def _read_or_make(self, role: Role) -> KeyRing:
        live = await self._cluster.get("Secret", self._namespace, SECRET_NAMES[role])
        if live is None:
            ring = new_ring(role, now=self._clock.now())
            live = await self._cluster.create(render_secret(ring, self._namespace))
            self._log.info("key_made", role=role, key_id=ring.signing.id)
        return parse_secret(role, live)
