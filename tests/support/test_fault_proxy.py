"""The fault proxy does what its rules say, and nothing to anybody else."""

import http.server
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.support.fault_proxy import (
    AnswerStatus,
    CutAnswer,
    Delay,
    DeliverLate,
    DropAnswer,
    FaultProxy,
    FlipAnswer,
    RepeatLater,
    Reset,
    Rule,
    Silence,
    Throttle,
)

OBJECT = bytes(range(256)) * 4


class CountingServer(http.server.ThreadingHTTPServer):
    """Answers every request with 200 and remembers it: method, path, Host, body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CountingHandler)
        self.received: list[tuple[str, str, str, bytes]] = []


class CountingHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CountingServer

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.received.append((self.command, self.path, self.headers["host"], body))
        self.send_response(200)
        self.send_header("content-length", str(len(OBJECT)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(OBJECT)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with CountingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.server_port, seed=1) as proxy:
        yield proxy


@pytest.fixture
def client(proxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=5.0) as client:
        yield client


def fails(client: httpx.Client, method: str = "PUT", path: str = "/log/1") -> bool:
    """Whether a request ends without a whole answer."""
    try:
        client.request(method, path, content=b"x" if method == "PUT" else None)
    except httpx.TransportError:
        return True
    return False


def test_without_a_rule_everything_is_passed_on_as_it_was(proxy, client, server):
    """A proxy that changes requests would test itself; signatures cover the path, the query and the host."""
    got = client.put("/bucket/a%20b%2Fc?list-type=2&prefix=x%2F", content=b"body" * 50_000)
    head = client.head("/bucket/x")

    assert (got.status_code, got.content) == (200, OBJECT)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(OBJECT)), b"")
    host = f"127.0.0.1:{proxy.port}"
    assert server.received == [
        ("PUT", "/bucket/a%20b%2Fc?list-type=2&prefix=x%2F", host, b"body" * 50_000),
        ("HEAD", "/bucket/x", host, b""),
    ]
    assert (proxy.forwarded, proxy.injected.total()) == (2, 0)


def test_a_rule_is_about_its_method_path_turn_and_number(proxy, client, server):
    """A test that says `the second log record` must hit that one."""
    proxy.rules = (Rule(AnswerStatus(status=503), methods=("PUT",), path=r"/log/\d+$", nth=2, times=1),)
    statuses = [
        client.request(method, path).status_code
        for method, path in (
            ("PUT", "/log/1"),
            ("GET", "/log/2"),
            ("PUT", "/MANIFEST"),
            ("PUT", "/log/3"),
            ("PUT", "/log/4"),
        )
    ]

    assert statuses == [200, 200, 200, 503, 200]


def test_rules_can_be_switched_while_it_runs(proxy, client):
    """Phases of a test: fault, then recovery."""
    proxy.rules = (Rule(AnswerStatus(status=500)),)
    during = client.get("/x").status_code
    proxy.rules = ()

    assert (during, client.get("/x").status_code) == (500, 200)


def test_equal_seeds_hit_equal_requests(server):
    """A failing run can be repeated."""
    runs = []
    for _ in range(2):
        with FaultProxy("127.0.0.1", server.server_port, seed=42) as proxy, httpx.Client(base_url=proxy.url) as client:
            proxy.rules = (Rule(AnswerStatus(status=500), probability=0.5),)
            runs.append([client.get("/x").status_code for _ in range(24)])

    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


@pytest.mark.parametrize("status", [403, 409, 412, 429, 500, 503])
@pytest.mark.parametrize("body", [b"", b"<Error><Code>SlowDown</Code></Error>"], ids=["without-body", "with-body"])
def test_answers_a_status_and_asks_nobody(proxy, client, server, status, body):
    """What a store says when it does not do it."""
    proxy.rules = (Rule(AnswerStatus(status=status, body=body, headers=(("retry-after", "1"),))),)
    answer = client.put("/log/1")

    assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (status, body, "1")
    assert server.received == []


def test_answers_a_failure_for_what_was_done(proxy, client, server):
    """500 does not say that nothing happened."""
    proxy.rules = (Rule(AnswerStatus(status=500, is_applied=True)),)

    assert client.put("/log/1").status_code == 500
    assert len(server.received) == 1


def test_drops_the_answer_after_the_server_did_it(proxy, client, server):
    """The outcome that nobody knows."""
    proxy.rules = (Rule(DropAnswer(), times=1),)

    assert fails(client)
    assert len(server.received) == 1
    assert proxy.injected == {"DropAnswer": 1}


def test_delivers_a_request_after_its_client_was_cut_off(proxy, client, server):
    """A PUT may arrive when its sender has long decided otherwise."""
    proxy.rules = (Rule(DeliverLate(0.2), times=1),)
    failed = fails(client)
    before = len(server.received)
    proxy.await_late()

    assert (failed, before, len(server.received)) == (True, 0, 1)


def test_repeats_a_request_later(proxy, client, server):
    """Networks and proxies deliver twice."""
    proxy.rules = (Rule(RepeatLater(0.2), times=1),)
    status = client.put("/log/1", content=b"once").status_code
    before = len(server.received)
    proxy.await_late()

    assert (status, before, len(server.received)) == (200, 1, 2)
    assert server.received[0] == server.received[1]


def test_resets_the_connection(proxy, client, server):
    """Nothing was done, and the client only sees the connection gone."""
    proxy.rules = (Rule(Reset(), times=1),)

    with pytest.raises(httpx.ReadError):
        client.put("/log/1")
    assert server.received == []


def test_says_nothing(proxy, client, server):
    """A client without a time limit would wait for ever."""
    proxy.rules = (Rule(Silence(), times=1),)

    with pytest.raises(httpx.ReadTimeout):
        client.put("/log/1", timeout=0.2)
    assert server.received == []


def test_cuts_the_answer(proxy, client):
    """Less came than was announced."""
    proxy.rules = (Rule(CutAnswer(10), times=1),)

    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/x")
    assert client.get("/x").content == OBJECT


def test_flips_one_bit_of_the_answer(proxy, client):
    """The transport's checksums miss some."""
    proxy.rules = (Rule(FlipAnswer(), times=1),)
    found = client.get("/x").content

    assert len(found) == len(OBJECT)
    assert sum((a ^ b).bit_count() for a, b in zip(found, OBJECT, strict=True)) == 1


def test_delays_a_request(proxy, client):
    """A slow store is none that is down."""
    proxy.rules = (Rule(Delay(0.2), times=1),)
    started = time.monotonic()

    assert client.get("/x").status_code == 200
    assert time.monotonic() - started >= 0.2


def test_throttles_bodies(proxy, client):
    """About 10 KB a second, in both directions."""
    proxy.rules = (Rule(Throttle(10_000), times=1),)
    started = time.monotonic()

    assert client.put("/x", content=bytes(1_000)).content == OBJECT
    assert time.monotonic() - started >= 0.2


def test_a_partition_lets_nothing_through_and_ends(proxy, client, server):
    """Both directions, for everybody, and then all is as before."""
    proxy.partition(0.5)
    with pytest.raises(httpx.TransportError):
        client.put("/log/1", timeout=0.1)
    received = len(server.received)
    while fails(client, "GET", "/x"):
        pass  # ends with the partition; the test's time limit bounds it

    assert received == 0
    assert len(server.received) == 1


def test_a_partition_takes_the_answers_that_are_under_way(proxy, client, server):
    """What was sent before may be done, and nobody is told."""
    proxy.rules = (Rule(Delay(0.2), times=1),)
    answers: list[bool] = []
    request = threading.Thread(target=lambda: answers.append(fails(client)))
    request.start()
    while not proxy.injected["Delay"]:
        time.sleep(0.005)
    proxy.partition(0.6)
    request.join()

    assert answers == [True]
    assert len(server.received) == 1
