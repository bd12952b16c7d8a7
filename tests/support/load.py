"""Writers and readers that never stop asking one shard; what they do and are told is recorded."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping

import aiohttp
import msgspec

from groundplane.wire.internal import SearchAnswer, StoredDocument, WriteResult
from tests.support.processes import ShardProcess
from tests.support.recording import Recorder
from tests.support.writes import (
    Versions,
    begin_write,
    document_in,
    is_refusal,
    key_of,
    operation,
    parts_stored,
    search_for,
)

WRITE_SECONDS = 8.0  # after which a writer gives up waiting
READ_SECONDS = 2.0
TOKEN_SECONDS = 20.0  # for which one capability is used; it is valid for 60
DOCUMENTS_PER_WRITER = 16


class Pace(msgspec.Struct, frozen=True):
    """How long writers pause after a refusal, so that they leave the others time, and readers between two questions."""

    after_refusal_seconds: float = 0.1
    between_reads_seconds: float = 0.05


class Load:
    """Writes to and reads from `target`, which may be changed at any time, in a thread of its own, until the block ends.

    Each document belongs to one writer, who waits for the answer to one version before sending the next. `answers` counts
    what writers were told, by status or error; `slowest_answer` is the longest that a writer waited for an answer or gave
    up, and `longest_gap` the longest time without an answered read, both since `measure` was called. `searched` is the
    last answer of a search without its candidates, `stale` the searches that did not reach the sequence that they asked for.
    """

    def __init__(
        self,
        target: ShardProcess,
        *,
        writers: int,
        seed: int,
        readers: int = 1,
        pace: Pace = Pace(),  # noqa: B008 - frozen
    ) -> None:
        self.target = target
        self.recorder = Recorder()
        self.answers: Counter[str] = Counter()
        self.slowest_answer = 0.0
        self.longest_gap = 0.0
        self.searched: SearchAnswer | None = None
        self.stale: list[str] = []
        self.sequence = 0  # the highest that was acknowledged
        self._writers = writers
        self._readers = readers
        self._pace = pace
        self._random = random.Random(seed)
        self._versions = Versions(self._random)
        self._last_read = time.monotonic()
        self._tokens: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def measure(self) -> None:
        """Forget how long answers took up to now."""
        self.slowest_answer, self.longest_gap, self._last_read = 0.0, 0.0, time.monotonic()

    def await_acknowledged(self, more: int, timeout_seconds: float = 60.0) -> None:
        """Return when so many further writes were acknowledged. Raises TimeoutError."""
        wanted, deadline = self.recorder.acknowledged + more, time.monotonic() + timeout_seconds
        while self.recorder.acknowledged < wanted:
            if time.monotonic() > deadline:
                found = self.recorder.acknowledged
                raise TimeoutError(f"{found} writes were acknowledged: expected {wanted}; {self.answers}")
            time.sleep(0.01)

    async def _run(self) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            writers = (self._write(session, number) for number in range(self._writers))
            readers = (self._read(session, f"reader-{number}") for number in range(self._readers))
            await asyncio.gather(*writers, *readers)

    def _headers(self, right: str) -> Mapping[str, str]:
        made_at, headers = self._tokens.get(right, (0.0, {}))
        if time.monotonic() - made_at > TOKEN_SECONDS:
            headers = self.target.headers("write" if right == "write" else "read")
            self._tokens[right] = (time.monotonic(), headers)
        return headers

    # -- writers

    async def _write(self, session: aiohttp.ClientSession, writer: int) -> None:
        while not self._stop.is_set():
            number = writer * DOCUMENTS_PER_WRITER + self._random.randrange(DOCUMENTS_PER_WRITER)
            started = time.monotonic()
            told = await self._write_once(session, f"writer-{writer}", number)
            self.slowest_answer = max(self.slowest_answer, time.monotonic() - started)
            self.answers[told] += 1
            if told != "200":
                await asyncio.sleep(self._pace.after_refusal_seconds)

    async def _write_once(self, session: aiohttp.ClientSession, observer: str, number: int) -> str:
        """Send the next version of one document, record what becomes of it, and return what the writer was told."""
        version, target = self._versions.next(number), self.target
        call = begin_write(self.recorder, observer, number, version)
        try:
            status, content = await self._post(session, "write", target.write_body(operation(number, version)))
        except aiohttp.ClientConnectorError:
            call.fail()  # nothing was sent
            return "no connection"
        except TimeoutError:
            return "given up"
        except aiohttp.ClientError:
            return "connection lost"
        if status == 200:
            sequence = msgspec.msgpack.decode(content, type=WriteResult).sequence
            self.sequence = max(self.sequence, sequence)
            call.ok(sequence=sequence)
        elif is_refusal(content):
            call.fail()
        return str(status)

    async def _post(self, session: aiohttp.ClientSession, path: str, body: bytes) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=WRITE_SECONDS if path == "write" else READ_SECONDS)
        url = f"{self.target.url}/{path}"
        async with session.post(url, data=body, headers=self._headers(path), timeout=timeout) as answer:
            return answer.status, await answer.read()

    # -- readers

    async def _read(self, session: aiohttp.ClientSession, observer: str) -> None:
        turn = 0
        while not self._stop.is_set():
            number = self._random.randrange(max(1, self._writers) * DOCUMENTS_PER_WRITER)
            read = self._search if turn % 2 else self._fetch
            turn += 1
            try:
                is_answered = await read(session, observer, number)
            except (TimeoutError, aiohttp.ClientError):
                is_answered = False
            if is_answered:
                self.longest_gap = max(self.longest_gap, time.monotonic() - self._last_read)
                self._last_read = time.monotonic()
            await asyncio.sleep(self._pace.between_reads_seconds)

    async def _search(self, session: aiohttp.ClientSession, observer: str, number: int) -> bool:
        asked = search_for(self.target, number, self.sequence)
        call = self.recorder.begin(observer, "read", key_of(number))
        status, content = await self._post(session, "search", msgspec.msgpack.encode(asked))
        if status != 200:
            return False
        found = msgspec.msgpack.decode(content, type=SearchAnswer)
        call.ok(sequence=found.sequence, document=document_in(found))
        self.searched = msgspec.structs.replace(found, candidates=[])
        if found.sequence < asked.min_sequence:
            self.stale.append(f"asked for {asked.min_sequence}, shown {found.sequence}")
        return True

    async def _fetch(self, session: aiohttp.ClientSession, observer: str, number: int) -> bool:
        call = self.recorder.begin(observer, "read", key_of(number))
        url, parameters = f"{self.target.url}/document", {"id": key_of(number)}
        timeout = aiohttp.ClientTimeout(total=READ_SECONDS)
        async with session.get(url, params=parameters, headers=self._headers("read"), timeout=timeout) as answer:
            content = await answer.read()
        if answer.status != 200:
            return False
        found = msgspec.msgpack.decode(content, type=StoredDocument)
        call.ok(sequence=found.sequence, document=parts_stored(found))
        return True
