"""A bucket of a real S3 server on loopback: where shards of the bench keep their corpora, and what a bare client does there."""

import asyncio
import shutil
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bench.corpus import DIMENSION
from bench.shard import BenchShard
from groundplane_shard.log import Layout, Manifest
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log.operations import Found
from groundplane_shard.stores.s3 import Credentials, FixedCredentials, S3Store
from groundplane_shard.stores.s3.bodies import BytesBody
from groundplane_shard.stores.s3.requests import Endpoint, Request
from tests.support.processes import ShardProcess
from tests.support.seaweedfs import S3Server

_WAIT_SECONDS = 10.0


class BucketShard(BenchShard):
    """One running shard whose corpus lies in a bucket, below a prefix of its own."""

    def __init__(self, process: ShardProcess, bucket: "Bucket", work_directory: Path) -> None:
        super().__init__(process)
        self._bucket = bucket
        self._work_directory = work_directory
        self._layout = Layout(process.key, process.incarnation)

    def restart_on_an_empty_disk(self) -> float:
        """Kill the process, remove what it has on this machine; return the seconds from the start until it is ready."""
        self.process.kill()
        self.forget_connections()
        shutil.rmtree(self._work_directory, ignore_errors=True)
        return self.start()

    def successor(self) -> "BucketShard":
        """Return a second process of the same corpus, not started yet."""
        return BucketShard(self.process.twin(), self._bucket, self._work_directory)

    def manifest(self) -> Manifest:
        """Return MANIFEST as it lies in the bucket."""
        return manifest_codec.decode(self._bucket.read(self._layout.manifest), key=self._layout.manifest)

    def newest_record(self) -> bytes:
        """Return the newest log object, whole."""
        return self._bucket.read(self._layout.record(self.status().sequence))


class Bucket:
    """A prefix of the server's bucket. `close` it at the end."""

    def __init__(self, server: S3Server) -> None:
        self._location = server.location()
        self._settings = server.settings
        self._credentials = Credentials(server.settings.access_key, server.settings.secret_key)
        self._endpoint = Endpoint(self._location, ca_file="", connections=1)

    def close(self) -> None:
        """Close the bare client's connection."""
        self._endpoint.close()

    def new_shard(self, root: Path) -> BucketShard:
        """Return a shard of a new corpus in this bucket, not started yet."""
        root.mkdir(parents=True)
        work = root / "disk"
        settings = {**self._shard_settings(), "GROUNDPLANE_WORK_DIRECTORY": str(work)}
        return BucketShard(ShardProcess(root, dimension=DIMENSION, settings=settings), self, work)

    def read(self, key: str) -> bytes:
        """Return an object that must exist."""
        with closing(S3Store(self._location, self._settings, FixedCredentials(self._credentials))) as store:
            found = asyncio.run(store.get(key))
        match found:
            case Found(data):
                return data
            case _:
                raise LookupError(f"{key} is not in the bucket")

    def bare_put(self, data: bytes) -> None:
        """Create one object, signed, on a connection that is kept, and read the answer: the least that a durable write costs."""
        request = Request(
            method="PUT",
            key=self._location.object_key(f"bare/{uuid.uuid4().hex}"),
            headers=(("if-none-match", "*"),),
            body=BytesBody(data),
            wait_seconds=_WAIT_SECONDS,
        )
        answer = self._endpoint.send(request, self._credentials)
        if answer.status != 200:
            raise RuntimeError(f"the server answered a bare PUT with {answer.status}")

    def _shard_settings(self) -> Mapping[str, str]:
        location = self._location
        return {
            "GROUNDPLANE_STORE_DIRECTORY": "",
            "GROUNDPLANE_OBJECT_STORE": f"s3://{location.bucket}/{location.prefix}?endpoint={location.endpoint}",
            "GROUNDPLANE_S3_ACCESS_KEY": self._credentials.access_key,
            "GROUNDPLANE_S3_SECRET_KEY": self._credentials.secret_key,
        }
