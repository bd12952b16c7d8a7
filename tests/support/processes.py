"""Real processes for tests and benchmarks: started from their environment, killed by their process id."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from groundplane.tokens import Right, SigningKey, capability_audience
from groundplane.wire.directory import CorpusEntry, Directory, Grant, Subject
from groundplane.wire.internal import (
    EmbeddingIdentity,
    Operation,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    WriteRequest,
    WriteResult,
)
from groundplane.wire.names import PLATFORM_KEY, CorpusKey, Incarnation, TenantId

ANALYSER_ID = "words-1-english"
READY_SECONDS = 30.0
PORTS = (12_000, 32_000)  # below the range that Linux takes for connections


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now, of those that no client's connection is given meanwhile."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def identity(dimension: int) -> EmbeddingIdentity:
    """Return an embedding identity for vectors that tests make up."""
    return EmbeddingIdentity(
        id=f"{dimension:032x}",
        format="plain",
        templates_digest="",
        model="test",
        dimension=dimension,
        fit=False,
        probes=(),
    )


class ProgramProcess:
    """One process of a program that listens on a port of 127.0.0.1; start, kill and start again."""

    module = ""

    def __init__(self, log_path: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id; fails if nothing runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and not ended by us."""
        return self._process is not None

    def settings(self) -> dict[str, str]:
        """Return the program's own variables."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process; `await_ready` says when it answers."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDPLANE_")}
        environment = {**inherited, "MALLOC_ARENA_MAX": "2", **self.settings()}
        with self.log_path.open("ab") as log:
            command = [sys.executable, "-m", self.module]
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def await_ready(self) -> float:
        """Return the seconds until /readyz answered 200; fails with the log's end if the process ends or time runs out."""
        started = time.monotonic()
        with httpx.Client(timeout=1.0) as client:
            while time.monotonic() - started < READY_SECONDS:
                if self._process is None or self._process.poll() is not None:
                    break
                try:
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return time.monotonic() - started
                except httpx.TransportError:
                    pass
                time.sleep(0.01)
        raise AssertionError(f"{self.module} did not become ready:\n{self.log_path.read_text()[-4_000:]}")

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process in its own way and return its exit code."""
        return self._end(signal.SIGTERM)

    def await_end(self, timeout_seconds: float = 30.0) -> int:
        """Return the exit code of a process that ends by itself, negative for a signal. Raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_seconds)

    def _end(self, signal_number: int) -> int:
        assert self._process is not None
        self._process.send_signal(signal_number)
        code = self._process.wait(timeout=60)
        self._process = None
        return code


class ShardProcess(ProgramProcess):
    """One shard of one corpus, its directories below `root`; shards of one root accept the same keys."""

    module = "groundplane_shard.main"

    def __init__(
        self, root: Path, *, key: str = "t-acme", dimension: int = 8, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(root / f"{key}.log")
        self.key = CorpusKey(key)
        self.incarnation = Incarnation(str(uuid.uuid4()))
        self.embedding = identity(dimension)
        self._root = root
        self._settings = dict(settings or {})
        keys = root / "keys"
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._signing = {role: SigningKey.load_or_create(root / f"{role}.pem") for role in ("router", "operator")}
        for role, key_of_role in self._signing.items():
            (keys / f"{role}-{key_of_role.id}.pem").write_bytes(key_of_role.public_pem())

    def twin(self) -> "ShardProcess":
        """Return a second process of the same corpus: same keys and store, its own port, log and work directory."""
        work = str(self._root / "work" / f"{self.key}-twin")
        other = ShardProcess(self._root, key=self.key, settings={**self._settings, "GROUNDPLANE_WORK_DIRECTORY": work})
        other.incarnation, other.embedding = self.incarnation, self.embedding
        other.log_path = self.log_path.with_suffix(".twin.log")
        return other

    def settings(self) -> dict[str, str]:
        """Return the shard's variables."""
        return {
            "GROUNDPLANE_CORPUS_KEY": self.key,
            "GROUNDPLANE_INCARNATION": self.incarnation,
            "GROUNDPLANE_STORE_DIRECTORY": str(self._root / "store"),
            "GROUNDPLANE_WORK_DIRECTORY": str(self._root / "work" / self.key),
            "GROUNDPLANE_KEYS_DIRECTORY": str(self._root / "keys"),
            "GROUNDPLANE_PORT": str(self.port),
            **self._settings,
        }

    def headers(self, right: Right = "read") -> dict[str, str]:
        """Return the headers of a request with a fresh capability."""
        signer = self._signing["operator" if right == "operate" else "router"]
        token = signer.sign_capability(capability_audience(self.key, self.incarnation), right, now=time.time())
        return {"authorization": f"Bearer {token}", "content-type": "application/msgpack"}

    def write_body(self, *operations: Operation) -> bytes:
        """Return the body of one write, which fixes the embedding identity if it is the first."""
        request = WriteRequest(
            incarnation=self.incarnation,
            analyser=ANALYSER_ID,
            operations=operations,
            embedding_id=self.embedding.id,
            embedding=self.embedding,
        )
        return msgspec.msgpack.encode(request)

    def write(self, client: httpx.Client, *operations: Operation) -> WriteResult:
        """Write and return the acknowledgement; raises on any other answer."""
        answer = client.post(f"{self.url}/write", content=self.write_body(*operations), headers=self.headers("write"))
        answer.raise_for_status()
        return msgspec.msgpack.decode(answer.content, type=WriteResult)

    def search(self, client: httpx.Client, request: SearchRequest) -> SearchAnswer:
        """Search and return the answer; raises on any other answer."""
        body = msgspec.msgpack.encode(request)
        answer = client.post(f"{self.url}/search", content=body, headers=self.headers("read"))
        answer.raise_for_status()
        return msgspec.msgpack.decode(answer.content, type=SearchAnswer)

    def status(self, client: httpx.Client) -> ShardStatus:
        """Return the shard's status."""
        answer = client.get(f"{self.url}/status", headers=self.headers("read"))
        answer.raise_for_status()
        return msgspec.msgpack.decode(answer.content, type=ShardStatus)


class RouterProcess(ProgramProcess):
    """A router before shards of one root. `grants` of each corpus are one subject, `agents:<corpus key>`, read and write."""

    module = "groundplane_router.main"

    def __init__(self, root: Path, shards: Sequence[ShardProcess], settings: Mapping[str, str]) -> None:
        super().__init__(root / "router.log")
        self._root = root
        self._settings = dict(settings)
        self._callers = SigningKey.load_or_create(root / "callers.pem")
        (root / "callers-public.pem").write_bytes(self._callers.public_pem())
        self.write_directory(shards)

    def write_directory(self, shards: Sequence[ShardProcess], *, states: Mapping[str, str] | None = None) -> None:
        """Tell the router which corpora exist; `states` by corpus key, `ready` where none is given."""
        entries = tuple(_entry(shard, (states or {}).get(shard.key, "ready")) for shard in shards)
        partial = self._root / "directory.partial"
        partial.write_bytes(msgspec.json.encode(Directory(corpora=entries)))
        partial.rename(self._root / "directory.json")

    def settings(self) -> dict[str, str]:
        """Return the router's variables."""
        return {
            "GROUNDPLANE_DIRECTORY_FILE": str(self._root / "directory.json"),
            "GROUNDPLANE_CALLER_KEY_FILE": str(self._root / "callers-public.pem"),
            "GROUNDPLANE_SIGNING_KEY_FILE": str(self._root / "router.pem"),
            "GROUNDPLANE_PORT": str(self.port),
            **self._settings,
        }

    def token(self, key: str) -> str:
        """Return an hour's token of the subject of one corpus."""
        return self._callers.sign_caller(_subject(key).name, now=time.time(), seconds=3_600)

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of a request of the subject of one corpus."""
        return {"authorization": f"Bearer {self.token(key)}"}


def _subject(key: str) -> Subject:
    return Subject(namespace="agents", service_account=key)


def _entry(shard: ShardProcess, state: str) -> CorpusEntry:
    tenant = None if shard.key == PLATFORM_KEY else TenantId(shard.key.removeprefix("t-"))
    return CorpusEntry(
        key=shard.key,
        name=shard.key,
        tenant=tenant,
        incarnation=shard.incarnation,
        endpoint=shard.url if state == "ready" else None,
        state=state,
        grants=(Grant(subject=_subject(shard.key), access=("read", "write")),),
    )


ProcessT = TypeVar("ProcessT", bound=ProgramProcess)


@contextmanager
def running(process: ProcessT) -> Iterator[ProcessT]:
    """Run `process` for a block and kill it at its end."""
    process.start()
    try:
        process.await_ready()
        yield process
    finally:
        if process.is_running:
            process.kill()
