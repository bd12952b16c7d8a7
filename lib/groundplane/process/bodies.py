"""Request bodies: each bounded in size and in time, and all that are held at once bounded together.

Bounds of single bodies say nothing about a thousand connections that send one each. What has arrived counts, not what a header
promises, so a slow peer holds no more than it sent; one byte too many is refused with 503, and all that it sent is let go.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import ClientDisconnect, Request

from groundplane.errors import InvalidInput, Unavailable

BODY_SECONDS: Final = 10.0
"""A body that takes longer to arrive holds a place that others need."""


class Bodies:
    """Reads the bodies of one process."""

    def __init__(self, max_held_bytes: int) -> None:
        """max_held_bytes: at least as much as the largest single body, or that one never gets through."""
        self._max_held_bytes = max_held_bytes
        self.held_bytes = 0

    @asynccontextmanager
    async def read(self, request: Request, max_bytes: int, media_type: str) -> AsyncIterator[bytes]:
        """Yield the whole body; it counts as held until the block ends, so let go of it there.

        Raises InvalidInput: 408 if it takes too long, 413 past `max_bytes`, 415 for another media type or any encoding;
        Unavailable (`overloaded`) where all bodies together are too large.
        """
        _check_type(request, media_type)
        _check_declared(request, max_bytes)
        held = _Held(self)
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    parts = [part async for part in held.take(request, max_bytes)]
            except TimeoutError as error:
                raise InvalidInput(
                    f"body did not arrive within {BODY_SECONDS:.0f} s: send it at once",
                    code="body_too_slow",
                    status=408,
                ) from error
            body = b"".join(parts)
            del parts  # else two copies live while the body is decoded
            yield body
        finally:
            self.held_bytes -= held.size_bytes

    def hold(self, size_bytes: int) -> None:
        """Count `size_bytes` more. Raises Unavailable, and counts nothing, past the bound."""
        if self.held_bytes + size_bytes > self._max_held_bytes:
            raise Unavailable(
                f"bodies of {self.held_bytes} bytes are being read: expected at most {self._max_held_bytes} in all; "
                "try again",
                code="overloaded",
                detail="overloaded",
            )
        self.held_bytes += size_bytes


class _Held:
    """How much of what is held is one request's."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size_bytes = 0

    async def take(self, request: Request, max_bytes: int) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they come."""
        try:
            async for part in request.stream():
                if self.size_bytes + len(part) > max_bytes:
                    raise _too_large(max_bytes)
                self._bodies.hold(len(part))
                self.size_bytes += len(part)
                yield part
        except ClientDisconnect as error:
            raise InvalidInput(
                "the caller closed the connection before its body was read", code="client_disconnected"
            ) from error


def _check_type(request: Request, media_type: str) -> None:
    declared = request.headers.get("content-type", media_type).split(";")[0].strip().lower()
    if declared != media_type:
        raise InvalidInput(
            f"content type {declared[:64]!r}: expected {media_type}", code="unsupported_media_type", status=415
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidInput("body is encoded: expected no content-encoding", code="unsupported_media_type", status=415)


def _check_declared(request: Request, max_bytes: int) -> None:
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> InvalidInput:
    return InvalidInput(f"body is larger than {max_bytes} bytes: send less at once", code="body_too_large", status=413)
