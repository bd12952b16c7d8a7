"""Real shard processes for tests and benchmarks: started from their environment, killed by their process id."""

import copy
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from groundplane.tokens import Right, SigningKey, capability_audience
from groundplane.wire.internal import (
    EmbeddingIdentity,
    Operation,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    WriteRequest,
    WriteResult,
)
from groundplane.wire.names import CorpusKey, Incarnation

ANALYSER_ID = "words-1-english"
READY_SECONDS = 30.0


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


class ShardProcess:
    """One shard of one corpus, its directories below `root`; start, kill and start again."""

    def __init__(
        self, root: Path, *, key: str = "t-acme", dimension: int = 8, settings: Mapping[str, str] | None = None
    ) -> None:
        self.key = CorpusKey(key)
        self.incarnation = Incarnation(str(uuid.uuid4()))
        self.embedding = identity(dimension)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = root / f"{key}.log"
        self._signing = {"read": SigningKey.generate(), "operate": SigningKey.generate()}
        self._root = root
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        keys = root / "keys"
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        (keys / f"router-{key}.pem").write_bytes(self._signing["read"].public_pem())
        (keys / f"operator-{key}.pem").write_bytes(self._signing["operate"].public_pem())

    def twin(self) -> "ShardProcess":
        """Return a second process of the same corpus: same keys and store, its own port, log and work directory."""
        other = copy.copy(self)
        other.port = free_port()
        other.url = f"http://127.0.0.1:{other.port}"
        other.log_path = self.log_path.with_suffix(".twin.log")
        other._settings = {
            **self._settings,
            "GROUNDPLANE_WORK_DIRECTORY": str(self._root / "work" / f"{self.key}-twin"),
        }
        other._process = None
        return other

    @property
    def pid(self) -> int:
        """Return the process id of the running shard."""
        assert self._process is not None
        return self._process.pid

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the process."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("GROUNDPLANE_")},
            "MALLOC_ARENA_MAX": "2",
            "GROUNDPLANE_CORPUS_KEY": self.key,
            "GROUNDPLANE_INCARNATION": self.incarnation,
            "GROUNDPLANE_STORE_DIRECTORY": str(self._root / "store"),
            "GROUNDPLANE_WORK_DIRECTORY": str(self._root / "work" / self.key),
            "GROUNDPLANE_KEYS_DIRECTORY": str(self._root / "keys"),
            "GROUNDPLANE_PORT": str(self.port),
            **self._settings,
        }

    def start(self) -> None:
        """Start the process; `await_ready` says when it answers."""
        with self.log_path.open("ab") as log:
            command = [sys.executable, "-m", "groundplane_shard.main"]
            self._process = subprocess.Popen(
                command, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def await_ready(self) -> float:
        """Return the seconds until /readyz answered 200; fails with the log's end if the process ends or time runs out."""
        started = time.monotonic()
        while time.monotonic() - started < READY_SECONDS:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if httpx.get(f"{self.url}/readyz", timeout=1.0).status_code == 200:
                    return time.monotonic() - started
            except httpx.TransportError:
                pass
            time.sleep(0.01)
        raise AssertionError(f"shard did not become ready:\n{self.log_path.read_text()[-4_000:]}")

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process in its own way and return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> int:
        assert self._process is not None
        self._process.send_signal(signal_number)
        code = self._process.wait(timeout=60)
        self._process = None
        return code

    def headers(self, right: Right = "read") -> dict[str, str]:
        """Return the headers of a request with a fresh capability."""
        signer = self._signing["operate" if right == "operate" else "read"]
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


@contextmanager
def running(shard: ShardProcess) -> Iterator[ShardProcess]:
    """Run `shard` for a block and kill it at its end."""
    shard.start()
    try:
        shard.await_ready()
        yield shard
    finally:
        if shard._process is not None:
            shard.kill()
