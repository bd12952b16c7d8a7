"""Writers and a reader that never stop asking one shard, and remember what they were told."""

import asyncio
import random
import threading
import time
from collections import Counter

import aiohttp
import msgspec

from groundplane.wire.internal import ChunkFields, SearchAnswer, SearchRequest, WriteResult
from tests.support.processes import ANALYSER_ID, ShardProcess
from tests.support.writes import CHUNKS, History, next_version, operation, version_of

WRITE_SECONDS = 8.0  # after which a writer gives up waiting
READ_SECONDS = 2.0
PAUSE_SECONDS = 0.1  # after a refusal; a writer that spins takes the time that the proxy needs
TOKEN_WRITES = 50  # for which one capability is used
DOCUMENTS_PER_WRITER = 16


class Load:
    """Writes to and reads from `target`, which may be changed at any time, in a thread of its own, until the block ends.

    `answers` counts what writers were told, by status or error; `slowest_answer` is the longest that a writer waited for an
    answer or gave up, and `longest_gap` the longest time without an answered search, both since `measure` was called.
    `reads` are answered searches, `violations` what no search may show.
    """

    def __init__(self, target: ShardProcess, *, writers: int, seed: int) -> None:
        self.target = target
        self.history = History()
        self.answers: Counter[str] = Counter()
        self.slowest_answer = 0.0
        self.longest_gap = 0.0
        self.reads = 0
        self.read_sequence = 0
        self.violations: list[str] = []
        self._writers = writers
        self._random = random.Random(seed)
        self._last_read = time.monotonic()
        self._sequence = 0  # the highest that was acknowledged
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

    def await_acknowledged(self, more: int, timeout_seconds: float = 30.0) -> None:
        """Return when so many further writes were acknowledged. Raises TimeoutError."""
        wanted, deadline = self.answers["200"] + more, time.monotonic() + timeout_seconds
        while self.answers["200"] < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.answers['200']} writes were acknowledged: expected {wanted}; {self.answers}")
            time.sleep(0.01)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(
                *(self._write(session, writer) for writer in range(self._writers)), self._read(session)
            )

    async def _write(self, session: aiohttp.ClientSession, writer: int) -> None:
        turns = 0
        first = writer * DOCUMENTS_PER_WRITER
        timeout = aiohttp.ClientTimeout(total=WRITE_SECONDS)
        while not self._stop.is_set():
            if turns % TOKEN_WRITES == 0:
                headers = self.target.headers("write")
            turns += 1
            number = first + self._random.randrange(DOCUMENTS_PER_WRITER)
            attempt = self.history.begin(number, next_version(self.history, number, self._random))
            body, target = self.target.write_body(operation(number, attempt.version)), self.target
            started = time.monotonic()
            try:
                async with session.post(f"{target.url}/write", data=body, headers=headers, timeout=timeout) as answer:
                    content = await answer.read()
            except TimeoutError:
                attempt.was_given_up = True
                self.answers["given up"] += 1
            except aiohttp.ClientError:
                self.answers["no connection"] += 1
            else:
                self.answers[f"{answer.status}"] += 1
                if answer.status == 200:
                    attempt.is_acknowledged = True
                    acknowledged = msgspec.msgpack.decode(content, type=WriteResult).sequence
                    self._sequence = max(self._sequence, acknowledged)
                    continue
            finally:
                self.slowest_answer = max(self.slowest_answer, time.monotonic() - started)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        timeout = aiohttp.ClientTimeout(total=READ_SECONDS)
        while not self._stop.is_set():
            target, at_least = self.target, self._sequence
            request = SearchRequest(
                incarnation=target.incarnation,
                analyser=ANALYSER_ID,
                terms=("version",),
                window=100,
                min_sequence=at_least,
                deadline_ms=1_000,
            )
            try:
                async with session.post(
                    f"{target.url}/search",
                    data=msgspec.msgpack.encode(request),
                    headers=target.headers("read"),
                    timeout=timeout,
                ) as answer:
                    content = await answer.read()
            except (TimeoutError, aiohttp.ClientError):
                content = b""
            else:
                if answer.status == 200:
                    self.reads += 1
                    self.longest_gap = max(self.longest_gap, time.monotonic() - self._last_read)
                    self._last_read = time.monotonic()
                    self._check(msgspec.msgpack.decode(content, type=SearchAnswer), at_least)
            await asyncio.sleep(0.05)

    def _check(self, answer: SearchAnswer, at_least: int) -> None:
        self.read_sequence = answer.sequence
        if answer.sequence < at_least:
            self.violations.append(f"sequence {answer.sequence} was shown: expected {at_least}, which was acknowledged")
        texts: dict[str, list[tuple[int, str]]] = {}
        for candidate in answer.candidates:
            fields = msgspec.msgpack.decode(candidate.chunk, type=ChunkFields)
            texts.setdefault(fields.doc_id, []).append((fields.ordinal, fields.text))
        for doc_id, parts in texts.items():
            if len(parts) == CHUNKS:  # the window may have cut it
                self._check_whole(doc_id, "".join(text for _, text in sorted(parts)))

    def _check_whole(self, doc_id: str, text: str) -> None:
        number = int(doc_id.removeprefix("doc-"))
        try:
            version = version_of(text)
        except ValueError as error:
            self.violations.append(str(error))
            return
        if all(attempt.version != version for attempt in self.history.attempts.get(number, [])):
            self.violations.append(f"{doc_id}: version {version} was shown, which nobody sent")
