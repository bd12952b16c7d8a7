"""Who may call: only a capability for this incarnation of this corpus, with the right that the route needs."""

from starlette.datastructures import Headers

from groundplane.errors import Denied
from groundplane.process.clock import Clock
from groundplane.tokens import Capability, Right
from groundplane_shard.mounted_keys import MountedKeys

_MAX_CACHED = 256
_SCHEME = "bearer "


class Access:
    """Checks capabilities; a verified one is remembered until it expires, so that a search does not pay for Ed25519."""

    def __init__(self, keys: MountedKeys, audience: str, clock: Clock) -> None:
        self._keys = keys
        self._audience = audience
        self._clock = clock
        self._verified: dict[str, Capability] = {}

    def check(self, headers: Headers, *rights: Right) -> None:
        """Return if the request carries a capability with one of `rights`. Raises Denied: 401 for none, 403 for another right."""
        values = headers.getlist("authorization")
        if len(values) != 1 or not values[0].lower().startswith(_SCHEME):
            raise Denied("capability is missing: expected one bearer token", code="capability_denied")
        capability = self._verify(values[0][len(_SCHEME) :])
        if capability.right not in rights:
            message = f"capability grants {capability.right}: expected {' or '.join(rights)}"
            raise Denied(message, code="capability_denied", status=403)

    def _verify(self, token: str) -> Capability:
        now = self._clock.now()
        known = self._verified.get(token)
        if known is not None and now < known.expires_at:
            return known
        capability = self._keys.verify_capability(token, self._audience, now=now)
        if len(self._verified) >= _MAX_CACHED:
            self._verified.clear()
        self._verified[token] = capability
        return capability
