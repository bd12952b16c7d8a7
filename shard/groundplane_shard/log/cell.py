"""MANIFEST as one process knows it, and the only way to change it: read, decide, replace on condition.

Invariants: every change is based on the version just read and sent with its etag (I7); an unknown outcome or a 412 is
settled by reading back, own bytes mean success; a version with a lower counter or epoch than one seen before is
refused, since somebody put an old MANIFEST back (I12).
Errors: `CorruptData` (missing, damaged, older than seen, of another owner), `Unavailable`, `OutcomeUnknown`; whatever
the decision raises.
"""

from collections.abc import Callable

import msgspec

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.log import manifest as codec
from groundplane_shard.log import steps
from groundplane_shard.log.layout import Epoch, Layout
from groundplane_shard.log.manifest import Manifest
from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Pause,
    PreconditionFailed,
    Refused,
    Replace,
    Steps,
    Stored,
    Unknown,
)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which corpus this process serves, and as whom.

    `owner` is the uid of the TenantCorpus whose prefix this is; `writer_id` is fresh for every process start.
    """

    layout: Layout
    owner: str
    writer_id: str


class _Version(msgspec.Struct, frozen=True):
    """One stored version of MANIFEST."""

    manifest: Manifest
    data: bytes
    etag: str


class ManifestCell:
    """The last known MANIFEST; `manifest` raises Unavailable before the first read."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._key = identity.layout.manifest
        self._known: _Version | None = None

    @property
    def manifest(self) -> Manifest:
        """MANIFEST as last read or written."""
        if self._known is None:
            raise Unavailable(f"{self._key} was not read yet: open the replica first", code="not_open")
        return self._known.manifest

    def open(self) -> Steps[Manifest]:
        """Read MANIFEST; make the first one if the prefix is empty.

        Raises CorruptData if there are objects but no MANIFEST: an existing prefix is never initialised again.
        """
        found = yield from self._try_read()
        if found is None and not (yield from self._is_in_use()):
            yield from steps.create(self._key, codec.encode(self._first_version()))
        return (yield from self.refresh())

    def refresh(self) -> Steps[Manifest]:
        """Read MANIFEST again. Raises CorruptData if it is gone, Unavailable without an answer."""
        return (yield from self._read()).manifest

    def change(self, decide: Callable[[Manifest], Manifest]) -> Steps[Manifest]:
        """Replace MANIFEST by `decide(base)` and return what is stored; no write if `decide` returns `base` itself.

        `decide` may be called several times, always with the newest version, and raises to refuse one. Counter and
        writer are set here. Raises Unavailable if nothing was changed, OutcomeUnknown if that cannot be told.
        """
        is_uncertain = False
        reason = ""
        sent: bytes | None = None
        for attempt in range(steps.MAX_TRIES):
            if attempt:
                yield Pause(attempt)
            try:
                base = yield from self._read()
            except Unavailable as error:
                raise steps.not_settled(self._key, error.message, is_uncertain=is_uncertain) from error
            target = base.manifest if base.data == sent else decide(base.manifest)
            if target is base.manifest:
                return target
            target, sent = self._next_version(base.manifest, target)
            match (yield Replace(self._key, sent, base.etag)):
                case Stored(etag):
                    return self._learn(_Version(target, sent, etag)).manifest
                case Refused(reason) if not is_uncertain:
                    break
                case Conflict():
                    reason = "another request for it was under way"
                case PreconditionFailed():  # another change came first, or an own try whose answer was lost
                    reason = "it was changed by others each time"
                case Unknown(reason) | Refused(reason):
                    is_uncertain = True
                case other:
                    raise steps.unexpected(Replace(self._key, b"", ""), other)
        raise steps.not_settled(self._key, reason, is_uncertain=is_uncertain)

    def _read(self) -> Steps[_Version]:
        found = yield from self._try_read()
        if found is None:
            raise CorruptData(
                f"{self._key} is missing: expected it beside the objects of this incarnation, whose prefix is never "
                "initialised again; restore it from a backup",
                code="no_manifest",
            )
        return found

    def _try_read(self) -> Steps[_Version | None]:
        known = self._known  # as of the question: another dialogue of this process may learn more before the answer
        fault = CorruptData(f"{self._key} was not read: expected a try")
        for _ in range(steps.MAX_READS):
            found = yield from steps.get(self._key)
            if isinstance(found, Absent):
                return None
            if known is not None and found.etag == known.etag:
                return known
            try:
                version = _Version(codec.decode(found.data, key=self._key), found.data, found.etag)
            except CorruptData as error:  # perhaps only the answer was damaged
                fault = error
                continue
            self._check_owner(version.manifest)
            self._check_not_older(version.manifest, known)
            return self._learn(version)
        raise fault

    def _is_in_use(self) -> Steps[bool]:
        """Return whether this process saw a MANIFEST before, or the prefix holds objects.

        The first record is asked for by name: it is a barrier, which is never deleted, and a listing may be incomplete. (A
        restored incarnation begins with a later one; there the listings have to do.)
        """
        layout = self.identity.layout
        first = yield from steps.get(layout.record(1))
        if self._known is not None or not isinstance(first, Absent):
            return True
        for prefix in (layout.log, layout.snapshots):
            page = yield from steps.list_page(prefix, "")
            if page.keys:
                return True
        return False

    def _first_version(self) -> Manifest:
        return Manifest(
            corpus_key=self.identity.layout.corpus_key,
            incarnation=self.identity.layout.incarnation,
            owner=self.identity.owner,
            counter=1,
            epoch=Epoch(0),
            writer_id=self.identity.writer_id,
        )

    def _next_version(self, base: Manifest, target: Manifest) -> tuple[Manifest, bytes]:
        target = msgspec.structs.replace(target, counter=base.counter + 1, writer_id=self.identity.writer_id)
        codec.check(target, key=self._key)
        return target, codec.encode(target)

    def _learn(self, version: _Version) -> _Version:
        if self._known is None or version.manifest.counter > self._known.manifest.counter:
            self._known = version
        return version

    def _check_not_older(self, found: Manifest, known: _Version | None) -> None:
        if known is None:
            return
        seen = known.manifest
        if found.counter <= seen.counter or found.epoch < seen.epoch:
            raise CorruptData(
                f"{self._key} has counter {found.counter} and epoch {found.epoch}: expected more than {seen.counter} and at "
                f"least {seen.epoch}, seen before; an old version was put back, restore the newest",
                code="went_back",
            )

    def _check_owner(self, manifest: Manifest) -> None:
        layout, owner = self.identity.layout, self.identity.owner
        found = (manifest.corpus_key, manifest.incarnation, manifest.owner)
        if found != (layout.corpus_key, layout.incarnation, owner):
            raise CorruptData(
                f"{self._key} belongs to {'/'.join(found)}: expected {layout.corpus_key}/{layout.incarnation}/{owner}; "
                "nothing was changed, point this shard at its own prefix",
                code="foreign_owner",
            )
