"""What the bucket's client makes of answers that are late, cut, wrong or none: never data, never a wrong certainty."""

import asyncio
import hashlib
import socket

import msgspec
import pytest

from groundplane.errors import CorruptData, GroundplaneError, OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores.s3 import Credentials, FixedCredentials, MountedCredentials, S3Settings, S3Store
from groundplane_shard.stores.s3.settings import StoreLocation
from tests.fakes.scripted_store import HANG_UP, SILENCE, Reply, answer, failure, found, scripted_store
from tests.support.processes import free_port

KEY = "t-acme/i/log/00000000000000000001"
SECRET = "s3cr3t-key-of-the-bucket"
KEYS = FixedCredentials(Credentials("access", SECRET, "t0ken"))
QUICK = S3Settings(answer_seconds=0.3, file_answer_seconds=0.3)
STORED = answer(200, etag='"e1"')
DATA = b"the object"
SHA256 = hashlib.sha256(DATA).hexdigest()


def open_store(endpoint, credentials=KEYS, settings=None):
    """Return a store whose server is at `endpoint`."""
    return S3Store(
        StoreLocation(endpoint=endpoint, bucket="corpora", prefix="prod"), settings or S3Settings(), credentials
    )


async def ask(verb, *replies, credentials=KEYS):
    """Return what `verb` makes of the replies, its result or error, and the requests that the server got."""
    with scripted_store(*replies) as server:
        store = open_store(server.endpoint, credentials, QUICK if SILENCE in replies else S3Settings())
        try:
            outcome = await verb(store)
        except GroundplaneError as error:
            outcome = error
        finally:
            await asyncio.to_thread(store.close)
    return outcome, server.requests


def get(store):
    return store.get(KEY)


def create(store):
    return store.create(KEY, DATA)


def replace(store):
    return store.replace(KEY, DATA, "e0")


def verify(store):
    return store.verify(KEY, size=len(DATA), sha256=SHA256)


def listing(store):
    return store.list_page("t-acme/", "")


def delete(store):
    return store.delete(KEY)


def page(*keys, truncated="false", count=None):
    """Return a page of keys below the store's prefix, as S3 gives it."""
    contents = "".join(f"<Contents><Key>prod/{key}</Key></Contents>" for key in keys)
    said = f"<KeyCount>{len(keys) if count is None else count}</KeyCount><IsTruncated>{truncated}</IsTruncated>"
    return answer(
        200,
        f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{said}{contents}</ListBucketResult>'.encode(),
    )


READS = [pytest.param(verb, id=verb.__name__) for verb in (get, verify, listing)]
WRITES = [pytest.param(verb, id=verb.__name__) for verb in (create, replace, delete)]
CUT = Reply(found(DATA).raw[:-3])
NO_ANSWER = [
    pytest.param(SILENCE, id="silence"),
    pytest.param(HANG_UP, id="hang-up"),
    pytest.param(Reply(b"HTTP/1.1 200"), id="cut-status"),
    pytest.param(Reply(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: x\r\n\r\nab"), id="cut-body"),
    pytest.param(Reply(b"HTTP/1.1 200 OK\r\netag: x\r\n\r\n"), id="no-length"),
    pytest.param(Reply(b"HTTP/1.1 200 OK\r\netag: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), id="cut-chunk"),
    pytest.param(Reply(b"\0\0not HTTP\r\n\r\n"), id="not-http"),
    pytest.param(answer(500), id="500"),
    pytest.param(failure(500, "InternalError"), id="500-xml"),
    pytest.param(answer(502, b"<html>bad gateway</html>"), id="502-page"),
    pytest.param(failure(503, "SlowDown"), id="503"),
    pytest.param(answer(504), id="504"),
]


@pytest.mark.parametrize("reply", NO_ANSWER)
@pytest.mark.parametrize("verb", WRITES)
async def test_write_without_certain_answer_is_unknown_and_not_repeated(verb, reply):
    """A repeated conditional write meets its own first try, and only the protocol knows how to settle that."""
    outcome, requests = await ask(verb, reply)

    assert isinstance(outcome, OutcomeUnknown)
    assert len(requests) == 1


@pytest.mark.parametrize(
    "reply", [*NO_ANSWER, pytest.param(answer(429), id="429"), pytest.param(answer(404), id="404-page")]
)
@pytest.mark.parametrize("verb", READS)
async def test_read_without_answer_is_unavailable_and_never_empty(verb, reply):
    """An outage that looked like absence would be taken for the end of the log."""
    outcome, requests = await ask(verb, reply)

    assert type(outcome) is Unavailable
    assert len(requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        answer(429),
        failure(400, "BadDigest"),
        answer(301, location="https://elsewhere/"),
        failure(404, "NoSuchBucket"),
        answer(405),
    ],
    ids=["429", "400", "301", "404", "405"],
)
@pytest.mark.parametrize("verb", WRITES)
async def test_refused_write_is_certainly_not_done(verb, reply):
    """The caller may be told so, and nothing has to be settled. A redirect is not followed: it could go anywhere."""
    outcome, requests = await ask(verb, reply)

    assert type(outcome) is Unavailable
    assert outcome.code == "store_io"
    assert len(requests) == 1


@pytest.mark.parametrize("verb", [*READS, *WRITES])
async def test_nothing_is_done_without_connection(verb):
    """A write that never left is refused at once, not left unknown."""
    store = open_store(f"http://127.0.0.1:{free_port()}")

    with pytest.raises(Unavailable) as refusal:
        await verb(store)
    store.close()
    assert type(refusal.value) is Unavailable
    assert refusal.value.code == "store_unreachable"


async def test_host_that_does_not_connect_is_given_up_soon():
    """Writers are to be refused within 2 s while the store is away, whatever patience its answers deserve."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        full = [socket.socket() for _ in range(4)]
        for waiting in full:  # the queue of a listener that accepts nobody: the next connection gets no answer
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        store = open_store(f"http://127.0.0.1:{listener.getsockname()[1]}", settings=S3Settings(answer_seconds=30.0))
        with pytest.raises(Unavailable) as refusal:
            await asyncio.wait_for(create(store), 5.0)
        store.close()
        for waiting in full:
            waiting.close()

    assert refusal.value.code == "store_unreachable"


@pytest.mark.parametrize(
    ("verb", "reply", "expected"),
    [
        pytest.param(create, STORED, Stored("e1"), id="create-stored"),
        pytest.param(create, failure(412, "PreconditionFailed"), PreconditionFailed(), id="create-412"),
        pytest.param(create, answer(412), PreconditionFailed(), id="create-412-no-body"),
        pytest.param(create, failure(409, "ConditionalRequestConflict"), Conflict(), id="create-409"),
        pytest.param(replace, failure(412, "PreconditionFailed"), PreconditionFailed(), id="replace-412"),
        pytest.param(replace, failure(404, "NoSuchKey"), PreconditionFailed(), id="replace-404"),
        pytest.param(get, found(DATA), Found(DATA, "e1"), id="get"),
        pytest.param(get, answer(200, DATA, etag='"e1"'), Found(DATA, "e1"), id="get-copied-without-metadata"),
        pytest.param(get, Reply(b'HTTP/1.1 200 OK\r\netag: "e"\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n'), Found(b"ab", "e"), id="get-chunked"),
        pytest.param(get, failure(404, "NoSuchKey"), Absent(), id="get-404"),
        pytest.param(verify, found(DATA), Verified(), id="verify"),
        pytest.param(listing, page("t-acme/a", "t-acme/b", truncated="true"), Listed(("t-acme/a", "t-acme/b"), more=True), id="list"),
        pytest.param(listing, page(), Listed(()), id="list-empty"),
        pytest.param(delete, answer(204), None, id="delete"),
        pytest.param(delete, failure(404, "NoSuchKey"), None, id="delete-absent"),
    ],
)  # fmt: skip
async def test_answer_is_told_as_the_contract_says(verb, reply, expected):
    """The protocol's rules rest on these words."""
    outcome, _ = await ask(verb, reply)

    assert outcome == expected


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer(200), id="no-etag"),
        pytest.param(answer(200, b"<Error><Code>InternalError</Code></Error>", etag='"e1"'), id="error-document"),
        pytest.param(answer(204), id="204-no-etag"),
    ],
)
async def test_success_that_is_none_leaves_a_write_unknown(reply):
    """Some stores report a failure in the body of a 200."""
    outcome, _ = await ask(create, reply)

    assert isinstance(outcome, OutcomeUnknown)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer(200, b"<Error><Code>InternalError</Code></Error>", etag='"e1"'), id="error-document"),
        pytest.param(answer(200, b"\n <html>log in</html>", etag='"e1"'), id="page"),
        pytest.param(answer(200, b""), id="empty-without-etag"),
        pytest.param(answer(206, DATA, etag='"e1"'), id="part"),
    ],
)
async def test_success_that_is_none_is_no_object(reply):
    """A proxy's page, or an error in the body of a 200, must not become a log record."""
    outcome, _ = await ask(get, reply)

    assert type(outcome) is Unavailable


async def test_object_damaged_on_the_way_is_read_again():
    """A damaged transfer is not a damaged object."""
    wrong = answer(200, b"the objecX", etag='"e1"', x_amz_meta_sha256=SHA256)

    assert (await ask(get, wrong, found(DATA)))[0] == Found(DATA, "e1")
    assert (await ask(verify, wrong, found(DATA)))[0] == Verified()


async def test_second_read_of_a_file_leaves_nothing_of_the_first(tmp_path):
    """What was verified is what lies there."""
    wrong = answer(200, b"cut", etag='"e1"')
    target = tmp_path / "a"
    outcome, _ = await ask(lambda store: store.download(KEY, target, size=len(DATA), sha256=SHA256), wrong, found(DATA))

    assert outcome == Verified()
    assert target.read_bytes() == DATA


async def test_object_that_stays_wrong_is_corrupt():
    """Bytes that are not what was stored are never data, and waiting does not mend them."""
    wrong = answer(200, b"the objecX", etag='"e1"', x_amz_meta_sha256=SHA256)

    assert isinstance((await ask(get, wrong))[0], CorruptData)
    assert isinstance((await ask(verify, wrong))[0], Damaged)


@pytest.mark.parametrize(
    "reply", [CUT, SILENCE, answer(200, b"<Error/>"), failure(503, "SlowDown")], ids=["cut", "silence", "page", "503"]
)
async def test_download_that_fails_leaves_no_file(reply, tmp_path):
    """Only verified bytes reach the directory that the table is opened from."""
    target = tmp_path / "fresh" / "a"
    outcome, _ = await ask(lambda store: store.download(KEY, target, size=len(DATA), sha256=SHA256), reply)

    assert type(outcome) is Unavailable
    assert not target.exists()


async def test_file_that_is_there_is_neither_overwritten_nor_removed(tmp_path):
    """A download into a directory that is not fresh is a fault, but not of that file."""
    target = tmp_path / "a"
    target.write_bytes(b"somebody's")
    outcome, requests = await ask(lambda store: store.download(KEY, target, size=len(DATA), sha256=SHA256), found(DATA))

    assert isinstance(outcome, Unavailable)
    assert requests == []
    assert target.read_bytes() == b"somebody's"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(page("t-acme/b", "t-acme/a"), id="out-of-order"),
        pytest.param(page("t-acme/a", "t-acme/a"), id="twice"),
        pytest.param(page("t-other/a"), id="elsewhere"),
        pytest.param(page("t-acme/a", count=2), id="fewer-than-said"),
        pytest.param(page(truncated="true"), id="goes-on-after-nothing"),
        pytest.param(page("t-acme/a", truncated="perhaps"), id="does-not-say"),
        pytest.param(failure(200, "InternalError"), id="error-document"),
        pytest.param(answer(200, b"<ListBucketResult><Contents><Key>prod/t-acme/a"), id="cut"),
        pytest.param(answer(200), id="empty"),
    ],
)
async def test_page_that_is_not_whole_and_in_order_is_no_page(reply):
    """A key that is overlooked is a record that is overlooked."""
    outcome, _ = await ask(listing, reply)

    assert type(outcome) is Unavailable


async def test_page_begins_after_the_key_that_was_asked_for():
    """A store that ignores `start-after` would have the same page read for ever."""
    outcome, _ = await ask(lambda store: store.list_page("t-acme/", "t-acme/b"), page("t-acme/a", "t-acme/c"))

    assert type(outcome) is Unavailable


@pytest.mark.parametrize(
    "reply",
    [failure(403, "AccessDenied"), answer(401), failure(400, "ExpiredToken"), failure(403, "RequestTimeTooSkewed")],
    ids=["403", "401", "expired", "skewed"],
)
@pytest.mark.parametrize("verb", [*READS, *WRITES])
async def test_refused_credentials_are_told_with_the_code_of_the_store(verb, reply):
    """An operator has to see that it is the key and not the network; with the same keys there is no second try."""
    outcome, requests = await ask(verb, reply)

    assert type(outcome) is Unavailable
    assert outcome.code == "store_denied"
    assert len(requests) == 1


async def test_store_names_its_reason():
    """`AccessDenied` and a clock that is wrong need different repairs."""
    outcome, _ = await ask(create, failure(403, "RequestTimeTooSkewed"))

    assert "403 RequestTimeTooSkewed" in outcome.message


async def test_rotated_credentials_are_taken_up_without_an_error(tmp_path):
    """A Secret that is rotated while the shard runs costs one refused request, which did nothing."""

    class RotatesWhenRefused(MountedCredentials):
        def reload(self, refused):
            (tmp_path / "access-key").write_text("second")
            return super().reload(refused)

    (tmp_path / "access-key").write_text("first")
    (tmp_path / "secret-key").write_text("secret")
    outcome, requests = await ask(
        create, failure(403, "InvalidAccessKeyId"), STORED, credentials=RotatesWhenRefused(tmp_path)
    )

    assert outcome == Stored("e1")
    assert ["first/" in requests[0].headers["authorization"], "second/" in requests[1].headers["authorization"]] == [
        True,
        True,
    ]
    assert [request.body for request in requests] == [DATA, DATA]


@pytest.mark.parametrize(
    "reply",
    [failure(403, "SignatureDoesNotMatch"), SILENCE, answer(500), answer(409, DATA)],
    ids=["403", "silence", "500", "409"],
)
@pytest.mark.parametrize("verb", [*READS, *WRITES])
async def test_no_secret_is_in_an_error(verb, reply):
    """Errors are logged and shown in conditions."""
    outcome, _ = await ask(verb, reply)
    seen, chain = "", outcome if isinstance(outcome, BaseException) else None
    while chain is not None:
        seen += f"{chain!r} {chain} {vars(chain)}"
        chain = chain.__cause__ or chain.__context__

    assert not any(secret in seen for secret in (SECRET, "t0ken", "Signature="))


async def test_conditions_and_digests_are_sent_and_signed():
    """What is signed cannot be dropped on the way without the store noticing."""
    _, (created,) = await ask(create, STORED)
    _, (replaced,) = await ask(replace, STORED)

    assert (created.method, created.target) == ("PUT", f"/corpora/prod/{KEY}")
    assert created.headers["if-none-match"] == "*"
    assert replaced.headers["if-match"] == '"e0"'
    assert created.headers["x-amz-content-sha256"] == created.headers["x-amz-meta-sha256"] == SHA256
    for request, condition in ((created, "if-none-match"), (replaced, "if-match")):
        signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        assert {"host", condition, "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"} <= set(signed)


async def test_file_that_is_longer_than_announced_is_never_completed(tmp_path):
    """The store must not be left with something that nobody has, however it checks digests itself."""
    source = tmp_path / "part"
    source.write_bytes(b"x" * 600_000 + b"more")
    announced = b"x" * 600_000
    file = LocalFile(path="part", source=str(source), size=len(announced), sha256=hashlib.sha256(announced).hexdigest())
    outcome, requests = await ask(lambda store: store.upload(KEY, file), STORED)

    assert type(outcome) is Unavailable
    assert outcome.code == "local_file_changed"
    assert all(len(request.body) < len(announced) for request in requests)


@pytest.mark.parametrize("verb", [*READS, create])
async def test_answer_that_drips_is_given_up(verb):
    """A byte now and then resets every timeout of a single read; a thread must not be held for ever by it."""
    dripping = msgspec.structs.replace(found(b"x" * 200), piece_bytes=1, pause_seconds=0.05)
    head = dripping.raw.index(b"\r\n\r\n") + 4
    whole_head_first = msgspec.structs.replace(dripping, raw=dripping.raw[head:])
    with scripted_store(_after(dripping.raw[:head], whole_head_first)) as server:
        store = open_store(server.endpoint, settings=S3Settings(answer_seconds=0.2, file_answer_seconds=0.2))
        with pytest.raises(Unavailable):
            await asyncio.wait_for(verb(store), 5.0)
        await asyncio.to_thread(store.close)


def _after(head, reply):
    """Return a reply that sends `head` at once and drips the rest."""
    return msgspec.structs.replace(reply, head=head)


async def test_store_that_reads_slowly_is_given_the_time_of_a_call_not_of_a_connection(monkeypatch):
    """Connecting is given up soon; a store that is busy with other requests is not away."""
    monkeypatch.setattr("groundplane_shard.stores.s3.connections.CONNECT_SECONDS", 0.2)
    with scripted_store(STORED, deaf_seconds=0.6) as server:
        store = open_store(server.endpoint)
        written = await store.create(KEY, bytes(12_000_000))  # more than the buffers of a connection take
        await asyncio.to_thread(store.close)

    assert written == Stored("e1")


async def test_log_is_written_while_files_are_transferred(tmp_path):
    """A restore or an upload of a snapshot keeps its threads to itself."""
    with scripted_store(*[SILENCE] * 8, STORED) as server:
        store = open_store(server.endpoint)
        stuck = [asyncio.create_task(verify(store)) for _ in range(20)]
        await asyncio.to_thread(server.wait_for, 8)
        written = await asyncio.wait_for(create(store), 10.0)
        methods = [request.method for request in server.requests]
    await asyncio.gather(*stuck, return_exceptions=True)
    await asyncio.to_thread(store.close)

    assert written == Stored("e1")
    assert methods == ["GET"] * 8 + ["PUT"]
