"""Who holds a tenant, the platform corpus or a subject: each belongs to one resource, whatever the order of events.

The holder is the resource whose status already has it; between two of which neither has, or by some accident both, the
older one (creationTimestamp, then uid). A resource keeps what its status has until that status is written anew, so an
edit that was refused takes nothing away. A resource that is being deleted holds on until it is gone.
"""

from collections.abc import Iterable, Sequence

import msgspec

from groundplane.wire.names import PLATFORM_KEY, CorpusKey
from groundplane_operator.reasons import Reason


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """One resource: what its spec wants, and what its status says that it holds. `name` is namespace/name."""

    name: str
    uid: str
    created: str
    wants_key: CorpusKey | None
    wants_subjects: frozenset[str] = frozenset()
    holds_key: CorpusKey | None = None
    holds_subjects: frozenset[str] = frozenset()


class Refusal(msgspec.Struct, frozen=True):
    """Why a claim is refused, for people and for machines."""

    reason: Reason
    message: str


def key_holder(key: CorpusKey, claimants: Iterable[Claimant]) -> Claimant | None:
    """Return who holds a corpus key, None if nobody wants it."""
    return _first([(each.holds_key == key, each) for each in claimants if key in {each.holds_key, each.wants_key}])


def subject_holder(subject: str, claimants: Iterable[Claimant]) -> Claimant | None:
    """Return who holds a subject, None if nobody wants it."""
    wanting = [each for each in claimants if subject in each.holds_subjects or subject in each.wants_subjects]
    return _first([(subject in each.holds_subjects, each) for each in wanting])


def try_refuse(claimant: Claimant, claimants: Sequence[Claimant]) -> Refusal | None:
    """Return why `claimant`, which is one of `claimants`, cannot have all that it wants; None if it can."""
    key = claimant.wants_key
    holder = key_holder(key, claimants) if key is not None else None
    if holder is not None and holder.uid != claimant.uid:
        what = "the platform corpus" if key == PLATFORM_KEY else "this tenant"
        return Refusal(
            Reason.CORPUS_CLAIMED,
            f"{what} is held by {holder.name}: expected one resource a corpus; delete one of the two",
        )
    for subject in sorted(claimant.wants_subjects):
        other = subject_holder(subject, claimants)
        if other is not None and other.uid != claimant.uid:
            return Refusal(
                Reason.SUBJECT_CLAIMED,
                f"{subject} is held by {other.name}: expected a subject in one corpus; remove it from one of the two",
            )
    return None


def kept_claims(claimant: Claimant, claimants: Sequence[Claimant]) -> tuple[CorpusKey | None, frozenset[str]]:
    """Return the key and the subjects of the status that are rightly there: what another one holds too, and first, is not."""
    key = claimant.holds_key
    holder = key_holder(key, claimants) if key is not None else None
    subjects = {(subject, subject_holder(subject, claimants)) for subject in claimant.holds_subjects}
    return (
        key if holder is not None and holder.uid == claimant.uid else None,
        frozenset(subject for subject, other in subjects if other is not None and other.uid == claimant.uid),
    )


def _first(candidates: Sequence[tuple[bool, Claimant]]) -> Claimant | None:
    """Return the holder among claimants that come with whether their status has it."""
    ordered = sorted(candidates, key=lambda found: (not found[0], found[1].created, found[1].uid))
    return ordered[0][1] if ordered else None
