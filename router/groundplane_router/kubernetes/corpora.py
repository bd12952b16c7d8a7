"""Pure: from TenantCorpus resources to the entries of the directory. Nothing here does I/O or knows the time.

A resource counts by its status alone, which the operator wrote; an edit that the operator refused changes nothing. A
resource is declared when its status names storage key and incarnation, and no longer when it is being deleted.

Two resources that claim one key, incarnation or subject cannot both have it. The operator never writes such a thing; should it
stand there all the same, the claim stays with the resource that holds it in the directory in force, if that still claims it,
else nobody gets it. So no event order and no restart of a router gives a subject to a corpus while another claims it too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from groundplane.api.v1alpha1 import TenantCorpusStatus
from groundplane.errors import InvalidInput
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import parse_incarnation
from groundplane_router.directory import READY_STATE, check_entry
from groundplane_router.kubernetes.objects import Resource

SUSPENDED_STATE: Final = "corpus_suspended"
NOT_READY_STATE: Final = "corpus_not_ready"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one resource says: its entry, a fault that makes it unreadable, or neither, as it is not declared (yet)."""

    uid: str
    name: str
    entry: CorpusEntry | None = None
    fault: str | None = None


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Entries without contradiction, by uid of their resource, and what stood in the way of more."""

    entries: Mapping[str, CorpusEntry]
    unreadable: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()


def read_resource(resource: Resource) -> Reading:
    """Return what `resource` says. Never raises: what cannot be read is a `fault`."""
    metadata = resource.metadata
    name = f"{metadata.namespace}/{metadata.name}"
    if metadata.deletion_timestamp is not None:
        return Reading(uid=metadata.uid, name=name)
    try:
        status = msgspec.json.decode(resource.status, type=TenantCorpusStatus | None)
        return Reading(uid=metadata.uid, name=name, entry=_entry_of(metadata.uid, name, status))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Reading(uid=metadata.uid, name=name, fault=f"{name}: status cannot be decoded")
    except InvalidInput as error:
        return Reading(uid=metadata.uid, name=name, fault=f"{name}: {error.message}")


def resolve(readings: Iterable[Reading], before: Mapping[str, CorpusEntry]) -> Resolved:
    """Return the entries of `readings`; `before` are those in force, by uid.

    An unreadable resource keeps the entry that it has in `before`.
    """
    readings = sorted(readings, key=lambda reading: reading.uid)
    faulty = [reading for reading in readings if reading.fault is not None]
    entries = {reading.uid: reading.entry for reading in readings if reading.entry is not None}
    entries |= {reading.uid: before[reading.uid] for reading in faulty if reading.uid in before}
    contradictions: list[str] = []
    for what, claims_of in _CLAIMS:
        refused = _refused_claims(entries, before, claims_of)
        contradictions += sorted({f"{what} {claim}" for claims in refused.values() for claim in claims})
        entries = {
            uid: kept
            for uid, entry in entries.items()
            if (kept := _without(entry, what, refused.get(uid, frozenset()))) is not None
        }
    unreadable = tuple(sorted(str(reading.fault) for reading in faulty))
    return Resolved(entries=entries, unreadable=unreadable, contradictions=tuple(contradictions))


def _entry_of(uid: str, name: str, status: TenantCorpusStatus | None) -> CorpusEntry | None:
    """Return the entry of an accepted resource. Raises InvalidInput for a status that contradicts itself."""
    if status is None or status.storage_key is None or status.incarnation is None:
        return None
    if status.incarnation != uid:
        raise InvalidInput("status.incarnation is not the uid of this resource: it was copied from another one")
    entry = CorpusEntry(
        key=status.storage_key,
        name=name,
        tenant=None,
        incarnation=parse_incarnation(status.incarnation),
        endpoint=status.endpoint,
        state=_state_of(status),
        grants=tuple(subject.grant for subject in status.subjects),
    )
    check_entry(entry)
    return entry


def _state_of(status: TenantCorpusStatus) -> str:
    conditions = {condition.type: condition.status for condition in status.conditions}
    if conditions.get("Suspended") == "True":
        return SUSPENDED_STATE
    return READY_STATE if conditions.get("Ready") == "True" else NOT_READY_STATE


def _keys(entry: CorpusEntry) -> set[str]:
    return {entry.key}


def _incarnations(entry: CorpusEntry) -> set[str]:
    return {entry.incarnation}


def _subjects(entry: CorpusEntry) -> set[str]:
    return {grant.subject.name for grant in entry.grants}


ClaimsOf = Callable[[CorpusEntry], set[str]]
_SUBJECT: Final = "subject"
_CLAIMS: Final[tuple[tuple[str, ClaimsOf], ...]] = (
    ("key", _keys),
    ("incarnation", _incarnations),
    (_SUBJECT, _subjects),
)


def _refused_claims(
    entries: Mapping[str, CorpusEntry], before: Mapping[str, CorpusEntry], claims_of: ClaimsOf
) -> Mapping[str, frozenset[str]]:
    """Return, by uid, the claims that others make too and that this one does not hold in `before`."""
    claimants: dict[str, set[str]] = defaultdict(set)
    for uid, entry in entries.items():
        for claim in claims_of(entry):
            claimants[claim].add(uid)
    refused: dict[str, set[str]] = defaultdict(set)
    for claim, uids in claimants.items():
        for uid in uids if len(uids) > 1 else ():
            if uid not in before or claim not in claims_of(before[uid]):
                refused[uid].add(claim)
    return {uid: frozenset(claims) for uid, claims in refused.items()}


def _without(entry: CorpusEntry, what: str, refused: frozenset[str]) -> CorpusEntry | None:
    """Return `entry` without the grants to refused subjects; None if its key or incarnation is refused."""
    if not refused:
        return entry
    if what != _SUBJECT:
        return None
    grants = tuple(grant for grant in entry.grants if grant.subject.name not in refused)
    return msgspec.structs.replace(entry, grants=grants)
