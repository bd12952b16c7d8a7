"""Bodies are bounded one by one and together, and what was refused is let go."""

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process import bodies
from groundplane.process.bodies import Bodies

JSON = "application/json"
MAX_BYTES, MAX_HELD_BYTES = 10, 25


def request(*parts, disconnects=False, hangs=False, **headers):
    """Return a request whose body comes in `parts`."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append({"type": "http.disconnect"} if disconnects else {"type": "http.request", "body": b""})

    async def receive():
        if hangs and len(waiting) == 1:
            await asyncio.Event().wait()
        return waiting.pop(0)

    encoded = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()}).raw
    return Request({"type": "http", "headers": [(name.lower(), value) for name, value in encoded]}, receive)


async def read(held, *parts, **how):
    async with held.read(request(*parts, **how), MAX_BYTES, JSON) as body:
        return body


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        pytest.param([b"0123456789"], {}, 200, id="at-the-bound"),
        pytest.param([b"01234", b"56789x"], {}, 413, id="too-long"),
        pytest.param([], {"content_length": "11"}, 413, id="declared-too-long"),
        pytest.param([b"01234", b"56789x"], {"content_length": "1"}, 413, id="length-that-lies"),
        pytest.param([b"x"], {"content_type": "text/plain"}, 415, id="other-type"),
        pytest.param([b"x"], {"content_type": "Application/JSON; charset=utf-8"}, 200, id="parameters-of-the-type"),
        pytest.param([b"x"], {"content_encoding": "gzip"}, 415, id="compressed"),
        pytest.param([b"x"], {"disconnects": True}, 400, id="gone"),
    ],
)
async def test_a_body_is_read_up_to_its_bound(parts, headers, status):
    """Excess is refused, whatever the headers say."""
    held = Bodies(MAX_HELD_BYTES)
    if status == 200:
        assert await read(held, *parts, **headers) == b"".join(parts)
        return
    with pytest.raises(InvalidInput) as refused:
        await read(held, *parts, **headers)

    assert refused.value.status == status
    assert held.held_bytes == 0


async def test_a_body_that_does_not_arrive_is_let_go(monkeypatch):
    """Its place and its bytes are somebody else's."""
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.02)
    held = Bodies(MAX_HELD_BYTES)
    with pytest.raises(InvalidInput) as refused:
        await read(held, b"x", hangs=True)

    assert (refused.value.status, refused.value.code, held.held_bytes) == (408, "body_too_slow", 0)


async def test_one_body_too_many_is_told_to_come_back_and_the_others_are_kept():
    """Each within its own bound, and all together more than the process has."""
    held = Bodies(MAX_HELD_BYTES)
    async with (
        held.read(request(b"0123456789"), MAX_BYTES, JSON) as first,
        held.read(request(b"0123456789"), MAX_BYTES, JSON) as second,
    ):
        with pytest.raises(Unavailable) as refused:
            await read(held, b"01234", b"5")
        assert held.held_bytes == 20
        assert await read(held, b"01234") == b"01234"

    assert refused.value.code == "overloaded"
    assert first == second == b"0123456789"
    assert held.held_bytes == 0


@given(sizes=st.lists(st.lists(st.integers(0, 12), max_size=4), max_size=8))
def test_never_more_is_held_than_allowed_and_nothing_stays_held(sizes):
    """Whatever mixture of bodies comes, one in the middle of another."""
    held = Bodies(MAX_HELD_BYTES)

    async def one(parts):
        try:
            async with held.read(request(*(b"x" * size for size in parts)), MAX_BYTES, JSON):
                assert held.held_bytes <= MAX_HELD_BYTES
                await asyncio.sleep(0)
        except (InvalidInput, Unavailable):
            pass

    async def all_at_once():
        await asyncio.gather(*(one(parts) for parts in sizes))

    asyncio.run(all_at_once())

    assert held.held_bytes == 0
