"""A small shard over real HTTP: the wire of a shard, documents in a dictionary, exact search, and faults to switch on."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from groundplane.analysis import Analyser
from groundplane.errors import Denied
from groundplane.process.clock import Clock
from groundplane.tokens import RIGHTS_OF_ROLE, VerifyingKeys, capability_audience
from groundplane.wire import internal
from groundplane.wire.content import Content
from groundplane.wire.directory import CorpusEntry, Grant
from groundplane.wire.names import CorpusKey, Incarnation, TenantId

MSGPACK = "application/msgpack"
FOREIGN = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class ShardFault(Exception):
    """Answer with this problem instead."""

    def __init__(
        self, status: int, code: str, kind: str = "unavailable", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.status = status
        self.headers = headers or {}
        self.problem = internal.ShardProblem(kind=kind, code=code, message=f"fake shard says {code}")


class FakeShard:
    """One corpus. `fault` switches misbehaviour on: slow, reset, empty, garbage, foreign, redirect, or a `ShardFault`.

    A fault meets only the paths in `faulty_paths` if that is set. `seen` holds (method, path, decoded request or query).
    """

    def __init__(
        self, key: CorpusKey, incarnation: Incarnation, keys: VerifyingKeys, *, clock: Clock, tenant: str | None = None
    ) -> None:
        self.key, self.incarnation = key, incarnation
        self.tenant = None if tenant is None else TenantId(tenant)
        self.analyser = Analyser()
        self.documents: dict[str, tuple[internal.ReplaceDocument, int]] = {}
        self.memos: dict[tuple[str, str], internal.PutMemo] = {}
        self.embedding: internal.EmbeddingIdentity | None = None
        self.target: internal.EmbeddingIdentity | None = None
        self.remade: dict[str, internal.ReplaceDocument] = {}
        self.pending_page = 100
        self.sequence = self.document_sequence = 0
        self.epoch = 7
        self.age_seconds = 0.5
        self.fault: str | ShardFault | None = None
        self.faulty_paths: set[str] | None = None
        self.redirect_to = ""
        self.tamper: Callable[[internal.SearchAnswer], internal.SearchAnswer] = lambda answer: answer
        self.seen: list[tuple[str, str, object]] = []
        self.state = "ready"
        self._keys, self._clock = keys, clock
        self._path = ""
        self._runner: web.AppRunner | None = None
        self._port: int | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=internal.MAX_WRITE_BYTES)
        app.router.add_route("*", "/{path}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port or 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def entry(self, grants: Sequence[Grant] = ()) -> CorpusEntry:
        return CorpusEntry(
            key=self.key,
            name=self.key,
            tenant=self.tenant,
            incarnation=self.incarnation,
            endpoint=f"http://127.0.0.1:{self._port}",
            state=self.state,
            grants=tuple(grants),
        )

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.seen]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        try:
            self._check_capability(request)
            body = await request.read()
            if self.fault not in {None, "foreign"} and (self.faulty_paths is None or path in self.faulty_paths):
                self.seen.append((request.method, path, None))
                return await self._misbehave(request)
            self._path = path  # nobody else gets a turn before the answer is made
            answer = self._answer(request, path, body)
        except Denied:
            return _problem(ShardFault(401, "capability_denied", "denied"))
        except ShardFault as fault:
            return _problem(fault)
        return web.Response(body=msgspec.msgpack.encode(answer), content_type=MSGPACK)

    def _check_capability(self, request: web.Request) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        audience = capability_audience(self.key, self.incarnation)
        granted = self._keys.verify_capability(token, audience, now=self._clock.now())
        needed = "write" if request.path == "/write" else "read"
        if granted.right != needed:
            raise Denied("right")
        assert granted.right in RIGHTS_OF_ROLE["router"]

    async def _misbehave(self, request: web.Request) -> web.StreamResponse:
        if isinstance(self.fault, ShardFault):
            raise self.fault
        if self.fault == "slow":
            await asyncio.Event().wait()
        if self.fault == "reset":
            assert request.transport is not None
            request.transport.abort()
        if self.fault == "redirect":
            return web.Response(status=307, headers={"Location": self.redirect_to})
        body = b"\x80" if self.fault == "empty" else b"<html>not msgpack</html>"
        return web.Response(body=body, content_type=MSGPACK)

    def _answer(self, request: web.Request, path: str, body: bytes) -> Any:
        if request.method == "POST":
            if path == "/search":
                search = msgspec.msgpack.decode(body, type=internal.SearchRequest)
                self.seen.append((request.method, path, search))
                return self.tamper(self._search(search))
            if path == "/known":
                known = msgspec.msgpack.decode(body, type=internal.KnownRequest)
                self.seen.append((request.method, path, known))
                return internal.KnownAnswer(
                    **self._version(), chunks=tuple(self._known(*document) for document in known.documents)
                )
            write = msgspec.msgpack.decode(body, type=internal.WriteRequest)
            self.seen.append((request.method, path, write))
            return self._write(write)
        self.seen.append((request.method, path, dict(request.query)))
        if path == "/documents":
            return self._page(request.query["after"], int(request.query["limit"]))
        if path == "/document":
            return self._document(request.query["id"])
        if path == "/pending":
            return self._pending(request.query["after"])
        if path == "/memo":
            return self._memo(request.query["name"], request.query["fingerprint"])
        return self._status()

    def _version(self) -> dict[str, Any]:
        is_foreign = self.fault == "foreign" and (self.faulty_paths is None or self._path in self.faulty_paths)
        incarnation = FOREIGN if is_foreign else self.incarnation
        return {"incarnation": incarnation, "epoch": self.epoch, "sequence": self.sequence}

    def _search(self, request: internal.SearchRequest) -> internal.SearchAnswer:
        self._check_embedding(request.embedding_id)
        if request.min_sequence > self.sequence:
            raise ShardFault(503, "sequence_not_reached")
        chunks = [
            self._chunk(document, ordinal)
            for document, _ in self.documents.values()
            for ordinal in range(len(document.chunks))
        ]
        counted = [(fields, Counter(terms), len(terms), vector) for fields, terms, vector in chunks]
        frequencies = tuple(sum(term in counts for _, counts, _, _ in counted) for term in request.terms)
        query = np.frombuffer(request.vector, "<f4") if request.vector else None
        candidates = [
            internal.Candidate(
                cosine=None if query is None else float(np.dot(query, vector)),
                term_frequencies=tuple(counts[term] for term in request.terms),
                length=length,
                chunk=msgspec.Raw(msgspec.msgpack.encode(fields)),
            )
            for fields, counts, length, vector in counted
        ]
        return internal.SearchAnswer(
            **self._version(),
            age_seconds=self.age_seconds,
            document_sequence=self.document_sequence,
            statistics=internal.Statistics(
                len(self.documents), len(chunks), sum(one[2] for one in counted), frequencies
            ),
            candidates=candidates,
        )

    def _chunk(self, document: internal.ReplaceDocument, ordinal: int) -> tuple[internal.ChunkFields, list[str], Any]:
        part = document.chunks[ordinal]
        text = document.text[part.start : part.end]
        fields = internal.ChunkFields(
            document.doc_id, ordinal, text, document.title, document.uri, part.heading, document.metadata
        )
        return fields, self.analyser.terms(f"{document.title or ''} {text}"), np.frombuffer(part.vector, "<f4")

    def _check_embedding(self, embedding_id: str | None) -> None:
        if self.embedding is not None and embedding_id is not None and embedding_id != self.embedding.id:
            raise ShardFault(409, "embedding_mismatch", "invalid_input")

    def _write(self, request: internal.WriteRequest) -> internal.WriteResult:
        step = request.operations[0]
        if isinstance(step, internal.TakeReindexStep):
            return self._take_step(step.step, request)
        if any(isinstance(one, internal.ReplaceDocument) and one.made_from is None for one in request.operations):
            self._check_embedding(request.embedding_id)
            if self.embedding is None:
                if request.embedding is None:
                    raise ShardFault(409, "embedding_unknown", "invalid_input")
                self.embedding = request.embedding
        results = tuple(self._apply(one, self.sequence + 1) for one in request.operations)
        self.sequence += any(one.changed for one in results)
        return internal.WriteResult(**self._version(), results=results)

    def _apply(self, operation: internal.Operation, sequence: int) -> internal.OperationResult:
        match operation:
            case internal.ReplaceDocument(doc_id=doc_id, made_from=int(made_from)):
                counts = doc_id in self.documents and self.documents[doc_id][1] == made_from
                if counts:
                    self.remade[doc_id] = operation
                return internal.OperationResult(counts, len(operation.chunks))
            case internal.ReplaceDocument():
                known = self.documents.get(operation.doc_id)
                if known is not None and known[0] == operation:
                    return internal.OperationResult(False, len(operation.chunks))
                self.documents[operation.doc_id] = (operation, sequence)
                self.document_sequence = sequence
                return internal.OperationResult(True, len(operation.chunks))
            case internal.DeleteDocument():
                found = self.documents.pop(operation.doc_id, None) is not None
                self.document_sequence = sequence if found else self.document_sequence
                self.remade.pop(operation.doc_id, None)
                return internal.OperationResult(found, 0)
            case internal.PutMemo():
                self.memos[operation.name, operation.fingerprint] = operation
                return internal.OperationResult(True, 0)
            case internal.DeleteMemo():
                return internal.OperationResult(
                    self.memos.pop((operation.name, operation.fingerprint), None) is not None, 0
                )
            case internal.TakeReindexStep():
                raise AssertionError("a step goes alone")

    def _known(self, doc_id: str, digest: bytes) -> int | None:
        document, _ = self.documents.get(doc_id, (None, 0))
        if document is None or self.embedding is None:
            return None
        content = Content(
            text=document.text, title=document.title, uri=document.uri, metadata=document.metadata,
            chunker=document.chunker, analyser_id=self.analyser.id, embedding_id=self.embedding.id,
        )  # fmt: skip
        return len(document.chunks) if content.digest() == digest else None

    def _take_step(self, step: str, request: internal.WriteRequest) -> internal.WriteResult:
        if step == "begin":
            self.target = request.embedding
        elif step == "abandon":
            self.target, self.remade = None, {}
        elif len(self.remade) != len(self.documents):
            raise ShardFault(409, "reindex_incomplete", "invalid_input")
        else:
            self.embedding, self.target = self.target, None
            self.documents = {doc_id: (remade, self.sequence) for doc_id, remade in self.remade.items()}
            self.remade = {}
        self.sequence += 1
        return internal.WriteResult(**self._version(), results=(internal.OperationResult(True, 0),))

    def _pending(self, after: str) -> internal.PendingPage:
        ids = sorted(doc_id for doc_id in self.documents if doc_id > after)
        page = [
            internal.PendingDocument(doc_id, known.text, known.title, known.uri, known.metadata, sequence)
            for doc_id, (known, sequence) in ((doc_id, self.documents[doc_id]) for doc_id in ids[: self.pending_page])
            if doc_id not in self.remade
        ]
        after = ids[self.pending_page - 1] if len(ids) > self.pending_page else ""
        return internal.PendingPage(**self._version(), documents=page, after=after or None)

    def _row(self, doc_id: str) -> internal.DocumentRow:
        document, sequence = self.documents[doc_id]
        return internal.DocumentRow(doc_id, document.title, document.uri, len(document.chunks), sequence)

    def _page(self, after: str, limit: int) -> internal.DocumentPage:
        ids = sorted(doc_id for doc_id in self.documents if doc_id > after)
        rows = [self._row(doc_id) for doc_id in ids[:limit]]
        return internal.DocumentPage(**self._version(), documents=rows, more=len(ids) > limit)

    def _document(self, doc_id: str) -> internal.StoredDocument:
        if doc_id not in self.documents:
            return internal.StoredDocument(**self._version(), document=None, text="", metadata=b"")
        document, _ = self.documents[doc_id]
        return internal.StoredDocument(
            **self._version(), document=self._row(doc_id), text=document.text, metadata=document.metadata
        )

    def _memo(self, name: str, fingerprint: str) -> internal.StoredMemo:
        memo = self.memos.get((name, fingerprint))
        return internal.StoredMemo(
            **self._version(),
            document_sequence=self.document_sequence,
            response=memo.response if memo else None,
            basis=memo.basis if memo else None,
        )

    def _status(self) -> internal.ShardStatus:
        return internal.ShardStatus(
            **self._version(),
            age_seconds=self.age_seconds,
            corpus_key=self.key,
            ready=True,
            detail=None,
            documents=len(self.documents),
            chunks=sum(len(document.chunks) for document, _ in self.documents.values()),
            document_sequence=self.document_sequence,
            analyser=self.analyser.id,
            embedding=self.embedding,
            engine="exact",
            snapshot_sequence=None,
            snapshot_time=None,
            key_ids=self._keys.ids,
            reindex=self._reindex(),
        )

    def _reindex(self) -> internal.ReindexStatus | None:
        if self.target is None:
            return None
        chunks = sum(len(document.chunks) for document in self.remade.values())
        return internal.ReindexStatus(embedding=self.target, documents=len(self.remade), chunks=chunks)


def _problem(fault: ShardFault) -> web.Response:
    body = msgspec.msgpack.encode(fault.problem)
    return web.Response(status=fault.status, body=body, content_type=MSGPACK, headers=fault.headers)
