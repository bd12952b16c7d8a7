"""Faults planted into taking over, into MANIFEST, and into what guards an incarnation."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from groundplane_shard.log import Identity, Manifest, Replica, Seq, Writer, cell, override, replica, restoring, steps
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import operations as ops
from groundplane_shard.log.cell import ManifestCell
from groundplane_shard.log.layout import Epoch
from groundplane_shard.log.override import Override, Witness
from groundplane_shard.log.publishing import Standing
from groundplane_shard.log.record import Encoded, Position
from groundplane_shard.log.restoring import Restoration
from tests.simulation.planting import Plant
from tests.simulation.store import ANY_VERSION

_next_version = ManifestCell._next_version
_raise_epoch = Replica._raise_epoch
_required_override = override.required_override
_restore_newest = Replica.restore_newest
_completed = restoring._completed
_claim = restoring._claim


def _take_over_without_barrier(
    self: Replica, witness: Witness | None = None, *, accept_data_loss: Seq | None = None
) -> ops.Steps[Writer]:
    yield from self._follow_to_end()
    epoch = yield from self._raise_epoch(self._check_witness(witness, accept_data_loss))
    yield from self._follow_to_end()
    standing = Standing(epoch, frozenset(self._barriers), frozenset(self._damaged), self._keep_snapshots)
    return Writer(self.cell, standing, self.position)


def _confirm_nothing(self: Replica, epoch: Epoch, barrier: Encoded) -> ops.Steps[None]:
    yield ops.Pause(1)


def _keep_the_epoch(self: Replica, wanted: Override | None) -> ops.Steps[Epoch]:
    manifest = yield from self.cell.change(lambda base: msgspec.structs.replace(base, epoch=Epoch(max(base.epoch, 1))))
    return manifest.epoch


def _raise_epoch_of_whoever(self: Replica, wanted: Override | None) -> ops.Steps[Epoch]:
    self._contended = None
    return (yield from _raise_epoch(self, wanted))


def _replace_any_version(key: str, data: bytes, etag: str) -> ops.Replace:
    return ops.Replace(key, data, ANY_VERSION)


def _same_counter(self: ManifestCell, base: Manifest, target: Manifest) -> tuple[Manifest, bytes]:
    target, _ = _next_version(self, base, target)
    target = msgspec.structs.replace(target, counter=base.counter)
    return target, manifest_codec.encode(target)


def _any_owner(self: ManifestCell, manifest: Manifest) -> None:
    return None


def _any_age(self: ManifestCell, found: Manifest, known: Any) -> None:
    return None


def _never_in_use(self: ManifestCell) -> ops.Steps[bool]:
    yield ops.Pause(1)
    return False


def _everyone_is_ours(self: Writer, base: Manifest) -> None:
    return None


def _no_override(prefix: str, found: Witness, witness: Witness, accepted: Seq | None) -> Override | None:
    return None


def _sequence_alone(prefix: str, found: Witness, witness: Witness, accepted: Seq | None) -> Override | None:
    same_epoch = msgspec.structs.replace(found, sequence=max(found.sequence, witness.sequence))
    return _required_override(prefix, same_epoch, witness, accepted)


def _any_acceptance(prefix: str, found: Witness, witness: Witness, accepted: Seq | None) -> Override | None:
    return _required_override(prefix, found, witness, None if accepted is None else found.sequence)


def _silent_acceptance(prefix: str, found: Witness, witness: Witness, accepted: Seq | None) -> Override | None:
    _required_override(prefix, found, witness, accepted)
    return None


def _raise_epoch_by_one(self: Replica, wanted: Override | None) -> ops.Steps[Epoch]:
    return (yield from _raise_epoch(self, None))


def _refuse_nothing(target: ManifestCell) -> ops.Steps[None]:
    yield ops.Pause(1)


def _claim_whatever_is_there(target: ManifestCell, source: Manifest) -> ops.Steps[None]:
    layout, identity = target.identity.layout, target.identity
    mine = msgspec.structs.replace(
        source, corpus_key=layout.corpus_key, incarnation=layout.incarnation, owner=identity.owner
    )
    found = yield from steps.get(layout.manifest)
    if isinstance(found, ops.Found):
        yield ops.Replace(layout.manifest, manifest_codec.encode(mine), found.etag)
    else:
        yield from _claim(target, source)


def _restore_one_record_more(wanted: Restoration) -> ops.Steps[Any]:
    later = wanted.until if wanted.until is None else Seq(wanted.until + 1)
    return (yield from _restore(msgspec.structs.replace(wanted, until=later)))


def _restore_without_witness(wanted: Restoration) -> ops.Steps[Any]:
    return (yield from _restore(msgspec.structs.replace(wanted, witness=None)))


def _copied_as_it_is(found: Encoded, after: Position, target: Identity) -> ops.Steps[Position]:
    yield from steps.create(target.layout.record(found.record.sequence), found.data)
    return found.position


def _open_unfinished(self: Replica) -> ops.Steps[None]:
    yield from self.cell.open()
    yield from self.restore_newest()
    yield from self.follow()


_restore = restoring.restore


def _patch_restore(planted: Callable[..., Any]) -> Plant:
    return lambda: patch("tests.simulation.lanes.restore", planted)


TAKEOVERS: dict[str, Plant] = {
    "no-barrier": lambda: patch.object(Replica, "take_over", _take_over_without_barrier),
    "no-second-manifest-read": lambda: patch.object(Replica, "_confirm", _confirm_nothing),
    "epoch-not-raised": lambda: patch.object(Replica, "_raise_epoch", _keep_the_epoch),
    "superseded-contends-again": lambda: patch.object(Replica, "_raise_epoch", _raise_epoch_of_whoever),
    "manifest-put-without-condition": lambda: patch.object(cell, "Replace", _replace_any_version),
    "counter-not-raised": lambda: patch.object(ManifestCell, "_next_version", _same_counter),
    "owner-not-checked": lambda: patch.object(ManifestCell, "_check_owner", _any_owner),
    "older-manifest-accepted": lambda: patch.object(ManifestCell, "_check_not_older", _any_age),
    "used-prefix-initialised-again": lambda: patch.object(ManifestCell, "_is_in_use", _never_in_use),
    "superseded-changes-manifest": lambda: patch.object(Writer, "_check_ours", _everyone_is_ours),
    "witness-ignored": lambda: patch.object(replica, "required_override", _no_override),
    "witness-sequence-ignored": lambda: patch.object(replica, "required_override", _sequence_alone),
    "any-loss-accepted": lambda: patch.object(replica, "required_override", _any_acceptance),
    "loss-accepted-without-record": lambda: patch.object(replica, "required_override", _silent_acceptance),
    "override-keeps-the-lost-epoch": lambda: patch.object(Replica, "_raise_epoch", _raise_epoch_by_one),
    "restore-into-a-used-prefix": lambda: patch.multiple(
        restoring, _refuse_used=_refuse_nothing, _claim=_claim_whatever_is_there
    ),
    "restore-beyond-the-named-sequence": _patch_restore(_restore_one_record_more),
    "restore-without-witness": _patch_restore(_restore_without_witness),
    "restored-records-keep-their-incarnation": lambda: patch.object(restoring, "_copy_record", _copied_as_it_is),
    "unfinished-restore-opened": lambda: patch.object(Replica, "open", _open_unfinished),
}
