"""Both shells do what the core says, over a transport that answers without a network."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from groundplane.client import (
    AsyncClient,
    Client,
    ClientOptions,
    DocumentInput,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.client.transport import uses_proxies
from groundplane.errors import InvalidInput
from groundplane.wire.public import IndexAnswer, WriteAnswer
from tests.fakes.answers import ground_answer

DEFAULT = ClientOptions()
Handler = Callable[[httpx.Request], httpx.Response]


def use(kind: str, handler: Handler, method: str, *arguments: Any, options: ClientOptions = DEFAULT) -> Any:
    """Call one method of a client of this kind whose router is `handler`."""
    transport = httpx.MockTransport(handler)
    if kind == "sync":
        with Client("http://router", "token", options=options, transport=transport) as client:
            return getattr(client, method)(*arguments)

    async def call() -> Any:
        async with AsyncClient("http://router", "token", options=options, transport=transport) as client:
            return await getattr(client, method)(*arguments)

    return asyncio.run(call())


both = pytest.mark.parametrize("kind", ["sync", "async"])


@both
def test_a_question_goes_out_with_the_token_and_comes_back_typed(kind):
    """The shortest use of the client works."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=msgspec.json.encode(ground_answer()))

    assert use(kind, handler, "ground", "why") == ground_answer()
    assert (seen[0].method, seen[0].url.path) == ("POST", "/v1/ground")
    assert seen[0].headers["authorization"] == "Bearer token"


@both
def test_a_busy_router_is_asked_again_as_often_as_allowed(kind):
    """A short overload does not reach the caller, a long one does."""
    requests = 0

    def handler(_: httpx.Request) -> httpx.Response:
        nonlocal requests
        requests += 1
        problem = {"type": "t", "title": "t", "status": 503, "code": "overloaded", "detail": "busy"}
        return httpx.Response(503, json=problem, headers={"Retry-After": "0"})

    with pytest.raises(ServiceUnreachable) as caught:
        use(kind, handler, "ground", "why", options=ClientOptions(retries=2))

    assert caught.value.code == "overloaded"
    assert requests == 3


@both
def test_every_attempt_gets_what_is_left_of_the_call(kind):
    """A limit for each request would let three of them take three times as long as the caller said."""
    limits: list[float] = []

    def handler(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"]["read"])
        return httpx.Response(503, json={}, headers={"Retry-After": "0"})

    with pytest.raises(ServiceUnreachable):
        use(kind, handler, "ground", "why", options=ClientOptions(retries=2, read_timeout_seconds=2.0))

    assert len(limits) == 3
    assert 2.0 >= limits[0] > limits[1] > limits[2] > 0


@both
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(httpx.ConnectError("refused"), ServiceUnreachable, id="refused"),
        pytest.param(httpx.ConnectTimeout("slow"), ServiceUnreachable, id="no-connection-in-time"),
        pytest.param(httpx.ReadTimeout("slow"), WriteOutcomeUnknown, id="no-reply-in-time"),
        pytest.param(httpx.RemoteProtocolError("gone"), WriteOutcomeUnknown, id="connection-lost"),
        pytest.param(httpx.WriteError("gone"), WriteOutcomeUnknown, id="lost-while-sending"),
    ],
)
def test_a_write_without_reply_is_unknown_if_it_may_have_arrived(kind, error, expected):
    """The caller is told to repeat exactly when that is needed."""

    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(expected):
        use(kind, handler, "delete_document", "a")


@both
def test_documents_are_indexed_in_batches(kind):
    """A whole corpus goes through one call."""
    sizes: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent = msgspec.json.decode(request.content)["documents"]
        sizes.append(len(sent))
        return httpx.Response(200, content=msgspec.json.encode(IndexAnswer(position=f"p{len(sizes)}", results=[])))

    documents = [DocumentInput(id=str(number), text="x") for number in range(5)]
    answers = use(kind, handler, "index", documents, options=ClientOptions(batch_documents=2))

    assert sizes == [2, 2, 1]
    assert [answer.position for answer in answers] == ["p1", "p2", "p3"]


@both
def test_a_memo_carries_any_json(kind):
    """The response is stored as JSON, not as text of JSON."""
    bodies: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append((request.url.raw_path, msgspec.json.decode(request.content)))
        return httpx.Response(200, content=msgspec.json.encode(WriteAnswer(position="p")))

    use(kind, handler, "put_memo", "na/me", "v1", {"days": 30})

    assert bodies == [(b"/v1/memos/na%2Fme/v1", {"response": {"days": 30}, "basis": None})]


def test_both_clients_have_the_same_methods():
    """Code moves from one to the other by adding await."""
    methods = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]

    assert methods[0] == methods[1]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("http://127.0.0.1:8080", False, id="loopback"),
        pytest.param("http://[::1]:8080", False, id="loopback-6"),
        pytest.param("http://localhost", False, id="localhost"),
        pytest.param("https://router.agents.svc", True, id="cluster"),
    ],
)
def test_a_router_of_this_machine_is_asked_past_the_proxy(url, expected):
    """A company's proxy cannot reach 127.0.0.1 of this machine."""
    assert uses_proxies(url) is expected


@pytest.mark.parametrize("url", ["", "router:8080", "127.0.0.1:8080", "ftp://router", "http://", "http://host:port"])
def test_an_address_that_is_no_url_is_refused_at_once(url):
    """A missing scheme is the most common slip."""
    with pytest.raises(InvalidInput, match="expected http://host:port"):
        Client(url, "token")
