"""A real S3 server for tests: SeaweedFS, built once from its Go module by `e2e.cluster.builds`, started on 127.0.0.1.

`GROUNDPLANE_TEST_S3`, a store URL, names a server to use instead, with its keys in `GROUNDPLANE_S3_ACCESS_KEY` and
`GROUNDPLANE_S3_SECRET_KEY`.
"""

import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from e2e.cluster import builds
from e2e.cluster.toolchain import cache_directory
from groundplane.errors import Unavailable
from groundplane.process.settings import read_settings
from groundplane_shard.stores.s3 import S3Settings, StoreLocation, parse_store_url
from groundplane_shard.stores.s3.credentials import Credentials
from groundplane_shard.stores.s3.requests import Answer, Endpoint, Request
from tests.support.processes import free_port

PROGRAM = "weed"
READY_SECONDS = 60.0
BUCKET = "groundplane-tests"


class S3Server(msgspec.Struct, frozen=True):
    """A bucket that tests may write to, each below a prefix of its own."""

    url: str  # a store URL without prefix
    settings: S3Settings

    def location(self) -> StoreLocation:
        """Return a prefix that nobody else uses."""
        return msgspec.structs.replace(parse_store_url(self.url), prefix=f"tests/{uuid.uuid4().hex}")


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Give the server that the environment names, or a SeaweedFS of our own with its files in `directory`."""
    named = named_server(os.environ)
    if named is not None:
        yield named
        return
    with _running(build(), directory) as server:
        yield server


def named_server(environment: Mapping[str, str]) -> S3Server | None:
    """Return the server that the environment names, if it does."""
    url = environment.get("GROUNDPLANE_TEST_S3", "")
    return S3Server(url, read_settings(S3Settings, environment)) if url else None


def is_ready() -> bool:
    """Whether nothing has to be built."""
    return named_server(os.environ) is not None or builds.binary(cache_directory(os.environ), PROGRAM).exists()


def build() -> Path:
    """Return the binary, building it if it is not cached. Raises `e2e.cluster.steps.StepFailed`."""
    cache = cache_directory(os.environ)
    builds.build(cache, [PROGRAM])
    return builds.binary(cache, PROGRAM)


@contextmanager
def _running(binary: Path, directory: Path) -> Iterator[S3Server]:
    """Start the server, wait until it stores an object, and end it by its process id."""
    settings = S3Settings(access_key=uuid.uuid4().hex, secret_key=uuid.uuid4().hex)
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": settings.access_key, "secretKey": settings.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "data").mkdir()
    (directory / "s3.json").write_bytes(msgspec.json.encode({"identities": [identity]}))
    port = free_port()
    with (directory / "weed.log").open("wb") as log:
        process = subprocess.Popen([str(binary), *_arguments(directory, port)], stdout=log, stderr=log)
    try:
        server = S3Server(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}", settings)
        _wait_until_it_stores(server, process, directory / "weed.log")
        yield server
    finally:
        process.kill()  # its data is of no use to anybody
        process.wait()


def _arguments(directory: Path, s3_port: int) -> list[str]:
    """Return the command line: all ports free ones, nothing but the S3 server, no report to anybody."""
    ports = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    return [
        "server",
        f"-dir={directory / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-master.electionTimeout=1s",
        "-volume.max=400",
        *(f"-{name}={free_port()}" for name in (*ports, "s3.port.grpc")),
        "-s3",
        f"-s3.port={s3_port}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={directory / 's3.json'}",
    ]


def _wait_until_it_stores(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    location, settings = parse_store_url(server.url), server.settings
    endpoint = Endpoint(location, ca_file="", connections=1)
    credentials = Credentials(settings.access_key, settings.secret_key)
    deadline = time.monotonic() + READY_SECONDS
    try:
        while not _answers(endpoint, credentials):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS does not get ready: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)  # another process is awaited; it tells nobody
    finally:
        endpoint.close()


def _answers(endpoint: Endpoint, credentials: Credentials) -> bool:
    """Make the bucket and an object in it; whether both were done."""
    try:
        made = endpoint.send(Request(method="PUT", wait_seconds=10.0), credentials)
        probe = Request(method="PUT", key="ready", wait_seconds=10.0)
        stored: Answer = endpoint.send(probe, credentials)
    except Unavailable:
        return False
    return made.status in {200, 409} and stored.status == 200
