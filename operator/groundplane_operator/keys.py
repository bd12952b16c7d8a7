"""The signing keys of router and operator: made once, replaced in steps of which none refuses a request (design section 6).

One Secret a role, in the operator's namespace. It is the whole state of a rotation, so any step may be the last before a
crash:

    signing.pem                    signs now (the router mounts it)
    next.pem                       signs later; its public half is published already
    previous.pem                   signed before; its public half is still published

    steady ──age──► next is published ──every shard reports it──► next signs, the old one is previous ──► steady
                                                                   (after KEEP_PREVIOUS_SECONDS)

Shards read public keys from their corpus's ConfigMap. A signer is switched only once every shard that runs has reported the
new key; the old one stays published until every router has long mounted the new one and no capability of the old one is
valid. Times pace a rotation; nothing is unsafe if a clock is wrong, for a capability carries its own end.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from groundplane.api.v1alpha1 import GROUP
from groundplane.errors import CorruptData, InvalidInput
from groundplane.tokens import KeyId, Role, SigningKey
from groundplane_operator import names

SIGNING: Final = "signing.pem"
NEXT: Final = "next.pem"
PREVIOUS: Final = "previous.pem"
KEEP_PREVIOUS_SECONDS: Final = 900.0
"""A mounted Secret reaches its pods within two minutes; a capability lives for one."""
CHANGED_ANNOTATION: Final = f"{GROUP}/changed-at"

SECRET_NAMES: Final[Mapping[Role, str]] = {"router": "groundplane-router-key", "operator": "groundplane-operator-key"}


class KeyRing(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one role. `changed_at`: seconds since 1970 of the last step of a rotation, or of the making."""

    role: Role
    signing: SigningKey
    next: SigningKey | None = None
    previous: SigningKey | None = None
    changed_at: float

    def __repr__(self) -> str:
        return f"KeyRing({self.role}, keys not shown)"

    @property
    def published(self) -> tuple[SigningKey, ...]:
        """Return the keys whose public halves shards have to know."""
        return tuple(key for key in (self.signing, self.next, self.previous) if key is not None)


def new_ring(role: Role, *, now: float) -> KeyRing:
    """Return a ring with a new key."""
    return KeyRing(role=role, signing=SigningKey.generate(), changed_at=now)


def try_next_step(
    ring: KeyRing, reported: Iterable[frozenset[KeyId]], *, rotate_seconds: float, now: float
) -> KeyRing | None:
    """Return the ring after the next step of its rotation, None while there is none to take.

    reported: of every shard that runs, the ids of the keys that it accepts. A shard that has not said yet counts as one
    that knows none.
    """
    if ring.next is not None:
        if not all(ring.next.id in ids for ids in reported):
            return None
        return KeyRing(role=ring.role, signing=ring.next, previous=ring.signing, changed_at=now)
    if ring.previous is not None:
        is_over = now - ring.changed_at >= KEEP_PREVIOUS_SECONDS
        return KeyRing(role=ring.role, signing=ring.signing, changed_at=ring.changed_at) if is_over else None
    if now - ring.changed_at < rotate_seconds:
        return None
    return KeyRing(role=ring.role, signing=ring.signing, next=SigningKey.generate(), changed_at=now)


def public_files(rings: Iterable[KeyRing]) -> dict[str, str]:
    """Return the public keys as a shard's key directory holds them: PEM by file name."""
    return {f"{ring.role}-{key.id}.pem": key.public_pem().decode() for ring in rings for key in ring.published}


def render_secret(ring: KeyRing, namespace: str) -> dict[str, Any]:
    """Return the Secret that holds `ring`."""
    files = {SIGNING: ring.signing, NEXT: ring.next, PREVIOUS: ring.previous}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": SECRET_NAMES[ring.role],
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "groundplane", names.MANAGED_BY_LABEL: names.FIELD_MANAGER},
            "annotations": {CHANGED_ANNOTATION: repr(ring.changed_at)},
        },
        "data": {name: base64.b64encode(key.private_pem()).decode() for name, key in files.items() if key is not None},
    }


def parse_secret(role: Role, secret: Mapping[str, Any]) -> KeyRing:
    """Return the ring that a live Secret holds. Raises CorruptData `keys_damaged`: nothing is replaced silently."""
    place = f"Secret {SECRET_NAMES[role]}"
    try:
        changed_at = float(secret["metadata"]["annotations"][CHANGED_ANNOTATION])
        keys = {
            name: SigningKey.parse(base64.b64decode(secret["data"][name], validate=True), f"{place}/{name}")
            for name in (SIGNING, NEXT, PREVIOUS)
            if name in secret["data"]
        }
        return KeyRing(
            role=role,
            signing=keys[SIGNING],
            next=keys.get(NEXT),
            previous=keys.get(PREVIOUS),
            changed_at=changed_at,
        )
    except (KeyError, TypeError, ValueError, InvalidInput) as error:
        raise CorruptData(
            f"{place} is not as the operator made it: restore it from a copy, or delete it and new keys are made; until "
            "every shard has them, routers are refused",
            code="keys_damaged",
        ) from error
