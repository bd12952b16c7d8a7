"""What only a real server shows: that it checks signatures and digests, and that TLS is checked by us."""

import asyncio
import ipaddress
import ssl
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import urllib3
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from groundplane.errors import Unavailable
from groundplane_shard.log.operations import Absent, Found, LocalFile, Stored
from groundplane_shard.stores.s3 import Credentials, FixedCredentials, S3Settings, S3Store, credential_source
from groundplane_shard.stores.s3.bodies import BytesBody
from groundplane_shard.stores.s3.requests import Endpoint, Request, sign
from groundplane_shard.stores.s3.settings import StoreLocation
from groundplane_shard.stores.s3.store import LARGE_FILE_BYTES
from tests.fakes.scripted_store import answer, found, scripted_store

KEY = "t-acme/i/log/00000000000000000001"


@pytest.fixture
def location(s3_server):
    return s3_server.location()


@pytest.fixture
def credentials(s3_server):
    return Credentials(s3_server.settings.access_key, s3_server.settings.secret_key)


@pytest.fixture
async def store(s3_server, location):
    store = S3Store(location, s3_server.settings, credential_source(s3_server.settings))
    yield store
    store.close()


async def test_write_whose_condition_was_dropped_on_the_way_is_refused(store, location, credentials):
    """A proxy that does not know the header would otherwise turn a create into an overwrite."""
    await store.create(KEY, b"first")
    endpoint = Endpoint(location, ca_file="", connections=1)
    request = Request(
        method="PUT",
        key=location.object_key(KEY),
        headers=(("if-none-match", "*"),),
        body=BytesBody(b"second"),
        wait_seconds=5.0,
    )
    url = endpoint.url(request)
    headers = sign(request, url, location.region, credentials, datetime.now(UTC))
    del headers["if-none-match"]
    with urllib3.PoolManager(retries=False) as pool:
        answered = await asyncio.to_thread(pool.request, "PUT", url.geturl(), body=b"second", headers=headers)
    endpoint.close()

    assert answered.status == 403
    assert (await store.get(KEY)).data == b"first"


async def test_body_that_changed_on_the_way_is_refused(store, location, credentials):
    """What is stored is what was signed."""

    class Changed(BytesBody):
        def chunks(self):
            yield bytes(self.size)

    endpoint = Endpoint(location, ca_file="", connections=1)
    request = Request(method="PUT", key=location.object_key(KEY), body=Changed(b"as signed"), wait_seconds=5.0)
    answered = await asyncio.to_thread(endpoint.send, request, credentials)
    endpoint.close()

    assert answered.status == 400
    assert await store.get(KEY) == Absent()


@pytest.mark.parametrize("wrong", [Credentials("nobody", "x"), None], ids=["access-key", "secret-key"])
async def test_wrong_keys_are_denied(location, credentials, wrong):
    """And told from an outage."""
    keys = wrong or msgspec.structs.replace(credentials, secret_key="x")
    store = S3Store(location, S3Settings(), FixedCredentials(keys))
    for call in (store.get(KEY), store.create(KEY, b""), store.list_page("", ""), store.delete(KEY)):
        with pytest.raises(Unavailable) as refusal:
            await call
        assert refusal.value.code == "store_denied"
    store.close()


async def test_bucket_that_is_missing_is_no_empty_store(s3_server, location):
    """Else a typing error would start an empty corpus."""
    elsewhere = msgspec.structs.replace(location, bucket="no-such-bucket")
    store = S3Store(elsewhere, S3Settings(), credential_source(s3_server.settings))
    for call in (store.get(KEY), store.list_page("", "")):
        with pytest.raises(Unavailable):
            await call
    store.close()


async def test_stores_of_two_prefixes_do_not_meet(s3_server, store, location):
    """Several installations may share a bucket, also if one's prefix begins like the other's."""
    longer = msgspec.structs.replace(location, prefix=f"{location.prefix}2")
    other = S3Store(longer, S3Settings(), credential_source(s3_server.settings))
    await other.create(KEY, b"theirs")

    assert await store.get(KEY) == Absent()
    assert (await store.list_page("", "")).keys == ()
    other.close()


async def test_key_of_every_allowed_character_is_stored_and_listed(store):
    """Signing and the path must agree on what is escaped."""
    key = "t/Az09_.=+@~-/x"
    stored = await store.create(key, b"x")

    assert isinstance(stored, Stored)
    assert await store.get(key) == Found(b"x", stored.etag)
    assert (await store.list_page("t/Az09_.=+@~-/", "t/Az09_.=+@~-/")).keys == (key,)


# -- TLS


@pytest.fixture
def authority(tmp_path):
    """Give a certificate for 127.0.0.1 that signs itself: its PEM file and the server's context."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test store")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "ca.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = tmp_path / "key.pem"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return pem, context


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "unknown"])
async def test_only_a_store_of_a_trusted_authority_is_spoken_to(authority, is_trusted):
    """The keys and the tenants' records would go to whoever answers."""
    pem, context = authority
    with scripted_store(found(b"x"), tls=context) as server:
        store = S3Store(
            StoreLocation(endpoint=server.endpoint, bucket="corpora"),
            S3Settings(ca_file=str(pem) if is_trusted else ""),
            FixedCredentials(Credentials("a", "s")),
        )
        if is_trusted:
            assert await store.get(KEY) == Found(b"x", "e1")
        else:
            with pytest.raises(Unavailable) as refusal:
                await store.get(KEY)
            assert refusal.value.code == "store_unreachable"
            assert server.requests == []
        await asyncio.to_thread(store.close)


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "unknown"])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_small_write_checks_the_certificate_too(authority, is_trusted, loop_factory):
    """It takes another way than a read: not one byte of a record may go to somebody else."""
    pem, context = authority

    async def create(endpoint):
        settings = S3Settings(ca_file=str(pem) if is_trusted else "")
        keys = FixedCredentials(Credentials("a", "s"))
        store = S3Store(StoreLocation(endpoint=endpoint, bucket="corpora"), settings, keys)
        try:
            return await store.create(KEY, b"data")
        except Unavailable as error:
            return error.code
        finally:
            store.close()

    with (
        scripted_store(answer(200, etag='"e1"'), tls=context) as server,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        outcome = runner.run(create(server.endpoint))

        assert outcome == (Stored("e1") if is_trusted else "store_unreachable")
        assert len(server.requests) == is_trusted


@pytest.mark.parametrize(
    ("size", "at_once"),
    [pytest.param(1024, 8, id="small"), pytest.param(LARGE_FILE_BYTES + 1, 1, id="large")],
)
async def test_large_files_are_published_one_at_a_time(tmp_path, monkeypatch, size, at_once):
    """Several at once are no sooner stored, and keep the log's records waiting for seconds."""
    under_way, most = [], []

    def put(_store, key, _body, _condition):
        under_way.append(key)
        most.append(len(under_way))
        time.sleep(0.02)
        under_way.remove(key)
        return Stored("e")

    monkeypatch.setattr(S3Store, "_put", put)
    location = StoreLocation(endpoint="http://127.0.0.1:1", bucket="corpora")
    store = S3Store(location, S3Settings(), FixedCredentials(Credentials("a", "s")))
    file = LocalFile(path="a", source=str(tmp_path / "a"), size=size, sha256="0" * 64)
    await asyncio.gather(*(store.upload(f"t/{number}", file) for number in range(16)))
    store.close()

    assert max(most) == at_once
