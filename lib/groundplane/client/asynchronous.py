"""The asynchronous client. Everything that is decided is decided in `calls`."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from groundplane.client import calls
from groundplane.client.batches import cut_batches
from groundplane.client.calls import AnswerT, Call, EvidenceOptions, GroundOptions, Reply, Spent
from groundplane.client.credentials import Token, from_environment, token_source
from groundplane.client.options import ClientOptions
from groundplane.client.transport import error_of_transport, limits_of, reply_of, uses_proxies
from groundplane.wire.public import (
    Basis,
    CorpusAnswer,
    DocumentAnswer,
    DocumentInput,
    DocumentList,
    EvidenceAnswer,
    GroundAnswer,
    IndexAnswer,
    MemoAnswer,
    ReindexAnswer,
    WriteAnswer,
)


class AsyncClient:
    """Asks and fills the corpus that the token belongs to; close it, or use it in `async with`.

    Every method raises a `ClientError`: RequestRefused, NotAuthorised, RetrievalUnavailable, WriteOutcomeUnknown or
    ServiceUnreachable. Safe to share between tasks of one event loop.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - frozen
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._token = token_source(token)
        self._options = options
        self._http = httpx.AsyncClient(base_url=url, transport=transport, trust_env=uses_proxies(url))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return a client of GROUNDPLANE_URL and GROUNDPLANE_TOKEN or GROUNDPLANE_TOKEN_FILE. Raises InvalidInput."""
        return cls(*from_environment(environment))

    async def ground(self, query: str, **options: Unpack[GroundOptions]) -> GroundAnswer:
        """Return the answer of the first tier that has one: memo, hybrid search, keyword search, or none."""
        return await self._send(calls.ground(query, options))

    async def evidence(self, query: str, **options: Unpack[EvidenceOptions]) -> EvidenceAnswer:
        """Return the passages that the corpora hold for `query`; no hits means "searched, nothing to say"."""
        return await self._send(calls.evidence(query, options))

    async def index(self, documents: Iterable[DocumentInput]) -> list[IndexAnswer]:
        """Index `documents`, in batches, and return one answer a batch; the last one's position holds them all."""
        return [answer async for answer in self.index_batches(documents)]

    async def index_batches(self, documents: Iterable[DocumentInput]) -> AsyncIterator[IndexAnswer]:
        """Index `documents` and yield the answer of each batch as it comes, for progress. Repeating is harmless."""
        for batch in cut_batches(documents, self._options):
            yield await self.index_batch(batch)

    async def index_batch(self, documents: list[DocumentInput]) -> IndexAnswer:
        """Index `documents` in one request: at most 500 documents and 8 MiB."""
        return await self._send(calls.index(documents))

    async def documents(self, *, cursor: str | None = None, limit: int = 100) -> DocumentList:
        """Return one page of the caller's documents, by id; go on with its `cursor` until that is None."""
        return await self._send(calls.documents(cursor, limit))

    async def document(self, doc_id: str) -> DocumentAnswer:
        """Return one document as it was indexed. Raises RequestRefused (404) if there is none."""
        return await self._send(calls.document(doc_id))

    async def delete_document(self, doc_id: str) -> WriteAnswer:
        """Delete one document; `found` says whether there was one."""
        return await self._send(calls.delete_document(doc_id))

    async def put_memo(self, name: str, fingerprint: str, response: Any, *, basis: Basis | None = None) -> WriteAnswer:
        """Store `response` (any JSON, at most 256 KiB) as the answer to exactly (name, fingerprint).

        `basis` is that of the answer it was made from; without it, the corpora as they are now.
        """
        return await self._send(calls.put_memo(name, fingerprint, response, basis))

    async def memo(self, name: str, fingerprint: str) -> MemoAnswer:
        """Return a stored memo. Raises RequestRefused (404) if there is none."""
        return await self._send(calls.memo(name, fingerprint))

    async def delete_memo(self, name: str, fingerprint: str) -> WriteAnswer:
        """Delete one memo; `found` says whether there was one."""
        return await self._send(calls.delete_memo(name, fingerprint))

    async def corpus(self) -> CorpusAnswer:
        """Return how the caller's corpus and the platform's are."""
        return await self._send(calls.corpus())

    async def reindex(self, *, cursor: str | None = None, abandon: bool = False) -> ReindexAnswer:
        """Re-embed the caller's corpus with the router's embedder for some seconds; go on with `cursor` while it runs.

        It may be begun again at any time. `abandon` leaves the corpus with the embedding it has.
        """
        return await self._send(calls.reindex(cursor, abandon=abandon))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, call: Call[AnswerT]) -> AnswerT:
        """Send `call` until a reply is not to be waited for, and return what it carries."""
        started = time.monotonic()
        ends = started + calls.call_seconds(call, self._options)
        for attempt in range(self._options.retries + 1):
            began = time.monotonic()
            reply = await self._exchange(call, ends - began)
            now = time.monotonic()
            spent = Spent(attempt=attempt, last_seconds=now - began, total_seconds=now - started)
            seconds = calls.retry_delay(call, reply, spent, self._options)
            if seconds is None:
                break
            await asyncio.sleep(seconds)
        return calls.read_reply(call, reply)

    async def _exchange(self, call: Call[Any], seconds: float) -> Reply:
        headers, timeout = calls.request_headers(call, self._token()), limits_of(seconds, self._options)
        try:
            response = await self._http.request(
                call.method, call.path, content=call.body, headers=headers, timeout=timeout
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise error_of_transport(call, error) from error
        return reply_of(response)
