"""The memo tier: stored answers under an exact (name, fingerprint), each with what it rested on.

A memo is stale when its basis differs from the corpora of now: incarnation and last document sequence of the caller's own, and
of the platform's where one is declared. `stale` is null where the platform cannot be asked and nothing else decides.
"""

import asyncio
from typing import Final

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.internal import DeleteMemo, PutMemo, StoredMemo, WriteRequest
from groundplane.wire.names import Scope, format_position
from groundplane.wire.public import (
    MAX_MEMO_BYTES,
    Basis,
    GroundRequest,
    MemoAnswer,
    MemoInput,
    ScopeBasis,
    ScopeReport,
    WriteAnswer,
    check_memo_name,
)
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.metrics import MemoResult, RouterMetrics
from groundplane_router.shards import Shards

STALE: Final = "stale"
FRESHNESS_UNKNOWN: Final = "freshness_unknown"
NOT_REACHED: Final = "sequence_not_reached"


class MemoLookup(msgspec.Struct, frozen=True, kw_only=True):
    """What the memo tier came to: an answer, a miss, or a failure. `report` is None where the request named no memo."""

    answer: MemoAnswer | None = None
    report: ScopeReport | None = None


class Memos:
    """Reads and writes the memos of the caller's own corpus."""

    def __init__(self, shards: Shards, analyser_id: str, metrics: RouterMetrics) -> None:
        self._shards = shards
        self._analyser_id = analyser_id
        self._metrics = metrics

    async def look_up(
        self, grants: Grants, request: GroundRequest, min_sequence: int, deadline: Deadline
    ) -> MemoLookup:
        """Return the memo that `request` names. Never raises for a shard: a failure is reported, and is no miss."""
        if request.name is None or request.fingerprint is None:
            return MemoLookup()
        with self._metrics.stage("memo") as watch:
            try:
                answer, sequence = await self._find(grants, request.name, request.fingerprint, deadline)
                if sequence < min_sequence:
                    return self._came_to("failed", ok=False, ms=watch.ms, detail=NOT_REACHED)
            except Unavailable as failure:
                return self._came_to("failed", ok=False, ms=watch.ms, detail=failure.detail)
        if answer is None:
            return self._came_to("miss", ok=True, ms=watch.ms)
        if request.fresh and answer.stale is not False:
            known = answer.stale is not None
            return self._came_to("stale", ok=known, ms=watch.ms, detail=STALE if known else FRESHNESS_UNKNOWN)
        return msgspec.structs.replace(self._came_to("hit", ok=True, ms=watch.ms), answer=answer)

    async def get(self, grants: Grants, name: str, fingerprint: str, deadline: Deadline) -> MemoAnswer:
        """Return one memo. Raises InvalidInput (404) where there is none, Unavailable."""
        _check_names(name, fingerprint)
        answer, _ = await self._find(grants, name, fingerprint, deadline)
        if answer is None:
            raise InvalidInput("no memo has this name and fingerprint", code="memo_not_found", status=404)
        return answer

    async def put(
        self, grants: Grants, name: str, fingerprint: str, memo: MemoInput, deadline: Deadline
    ) -> WriteAnswer:
        """Store a memo. Raises InvalidInput, Unavailable, OutcomeUnknown."""
        _check_names(name, fingerprint)
        response = _checked_response(memo)
        basis = await self._basis_of(grants, memo.basis, deadline)
        operation = PutMemo(name=name, fingerprint=fingerprint, response=response, basis=basis)
        return await self._write(grants, operation, deadline)

    async def delete(self, grants: Grants, name: str, fingerprint: str, deadline: Deadline) -> WriteAnswer:
        """Remove a memo; `found` says whether there was one. Raises InvalidInput, Unavailable, OutcomeUnknown."""
        _check_names(name, fingerprint)
        return await self._write(grants, DeleteMemo(name=name, fingerprint=fingerprint), deadline)

    async def _write(self, grants: Grants, operation: PutMemo | DeleteMemo, deadline: Deadline) -> WriteAnswer:
        request = WriteRequest(incarnation=grants.own.incarnation, analyser=self._analyser_id, operations=(operation,))
        result = await self._shards.write(grants.own, request, deadline)
        found = result.results[0].changed if isinstance(operation, DeleteMemo) else True
        return WriteAnswer(position=format_position(grants.own.incarnation, result.sequence), found=found)

    async def _find(
        self, grants: Grants, name: str, fingerprint: str, deadline: Deadline
    ) -> tuple[MemoAnswer | None, int]:
        """Return the memo, if any, and the sequence at which the shard looked."""
        stored = await self._shards.memo(grants.own, name, fingerprint, deadline)
        if stored.response is None:
            return None, stored.sequence
        basis = stored.basis or Basis()
        stale = await self._is_stale(grants, stored, basis, deadline)
        return MemoAnswer(response=msgspec.Raw(stored.response), stale=stale, basis=basis), stored.sequence

    async def _is_stale(self, grants: Grants, stored: StoredMemo, basis: Basis, deadline: Deadline) -> bool | None:
        now = ScopeBasis(incarnation=stored.incarnation, sequence=stored.document_sequence)
        if _own_part(grants, basis) != now:
            return True
        if grants.scope is Scope.PLATFORM:
            return False
        if grants.platform is None or basis.platform is None:
            return (grants.platform is None) != (basis.platform is None)
        if basis.platform.incarnation != grants.platform.incarnation:
            return True
        try:
            return basis.platform != await self._now(grants.platform, deadline)
        except Unavailable:
            return None

    async def _basis_of(self, grants: Grants, given: Basis | None, deadline: Deadline) -> Basis:
        """Return the basis given, else that of now. Raises Unavailable where a corpus cannot be asked: half a basis says nothing.

        A document written between asking and storing makes the memo stale at once, which errs on the safe side.
        """
        if given is not None:
            return _checked_basis(grants, given)
        own, platform = await asyncio.gather(
            self._now(grants.own, deadline),
            self._now(grants.platform, deadline),
        )
        return Basis(platform=own) if grants.scope is Scope.PLATFORM else Basis(tenant=own, platform=platform)

    async def _now(self, corpus: CorpusEntry | None, deadline: Deadline) -> ScopeBasis | None:
        if corpus is None:
            return None
        status = await self._shards.status(corpus, deadline)
        return ScopeBasis(incarnation=status.incarnation, sequence=status.document_sequence)

    def _came_to(self, result: MemoResult, *, ok: bool, ms: float, detail: str | None = None) -> MemoLookup:
        self._metrics.memo.labels(result).inc()
        return MemoLookup(report=ScopeReport(ok=ok, ms=ms, detail=detail))


def _own_part(grants: Grants, basis: Basis) -> ScopeBasis | None:
    return basis.platform if grants.scope is Scope.PLATFORM else basis.tenant


def _checked_response(memo: MemoInput) -> bytes:
    """Return the bytes of the response, which come back as they are: JSON of text that UTF-8 can carry, not too long."""
    response = bytes(memo.response)
    if len(response) > MAX_MEMO_BYTES:
        raise InvalidInput(
            f"response has {len(response)} bytes: expected at most {MAX_MEMO_BYTES}",
            code="body_too_large",
            field="response",
            status=413,
        )
    try:
        response.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "response is not UTF-8: expected JSON text", code="invalid_json", field="response"
        ) from error
    return response


def _checked_basis(grants: Grants, given: Basis) -> Basis:
    if _own_part(grants, given) is None:
        field = f"basis.{grants.scope.value}"
        raise InvalidInput(
            f"{field} is missing: send the basis of an answer, or none to take the corpora as of now", field=field
        )
    return given


def _check_names(name: str, fingerprint: str) -> None:
    check_memo_name(name, "name")
    check_memo_name(fingerprint, "fingerprint")
