"""The override: what stands in the log where somebody accepted that the store had lost records (I12).

It is the barrier of the take-over that goes on from less than the witness knows, so that no writer can begin behind a loss
without saying so in the log. Its payload is JSON:

    {"accepted_sequence": 80, "witness_epoch": 7, "witness_sequence": 94}

Records `accepted_sequence + 1` to `witness_sequence` of the witness's epoch and below are lost. The override's own epoch
is above the witness's, so that nothing a writer of the lost part still sends can be taken for this log.
Errors: `CorruptData`.
"""

import msgspec

from groundplane.errors import CorruptData
from groundplane_shard.log.layout import Epoch, Seq


class Witness(msgspec.Struct, frozen=True):
    """The highest durable epoch and sequence, as recorded outside the store (I12)."""

    epoch: Epoch
    sequence: Seq


class Override(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted loss: the log goes on after `accepted_sequence` although the witness had seen more."""

    accepted_sequence: Seq
    witness_epoch: Epoch
    witness_sequence: Seq


_DECODER = msgspec.json.Decoder(Override)


def encode(override: Override) -> bytes:
    """Return the payload of the override record."""
    return msgspec.json.encode(override)


def decode(payload: bytes, *, key: str) -> Override:
    """Return what an override record says. Raises CorruptData that names `key`."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(
            f"override {key} has {str(error)[:256]}: expected the JSON document that a shard writes; restore from a backup"
        ) from error


def required_override(prefix: str, found: Witness, witness: Witness, accepted: Seq | None) -> Override | None:
    """Return what must stand in the log before it goes on after `found`; None if it holds all that the witness saw.

    Raises CorruptData (code `behind_witness`) unless `accepted` names exactly the sequence at which the log ends.
    """
    if found.epoch >= witness.epoch and found.sequence >= witness.sequence:
        return None
    if accepted != found.sequence:
        naming = "" if accepted is None else f" (the loss accepted was that after {accepted})"
        raise CorruptData(
            f"{prefix} ends at epoch {found.epoch}, sequence {found.sequence}{naming}: expected at least epoch {witness.epoch}, "
            f"sequence {witness.sequence}, recorded outside the store; restore the newer objects, or stop every process of "
            f"the corpus and accept the loss of all that came after {found.sequence}",
            code="behind_witness",
        )
    return Override(accepted_sequence=accepted, witness_epoch=witness.epoch, witness_sequence=witness.sequence)
