"""Rows, raw tables and processes that several measures share, made when first asked for, in a directory that goes away."""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType

from bench.bucket import Bucket, BucketShard
from bench.corpus import Corpus, Query, Rows
from bench.measure import Plan
from bench.raw import RawTable
from bench.shard import BenchShard, running
from tests.support.seaweedfs import s3_server

SMALL, LARGE, QUERIES = 10_000, 100_000, 400


class Workbench:
    """What a measure works with. Leaving it closes the tables and removes the directory."""

    def __init__(self, plan: Plan, seed: int = 20261201) -> None:
        self.plan = plan
        self.directory = Path(tempfile.mkdtemp(prefix="groundplane-bench-"))
        self.corpus = Corpus(seed)
        self._tables: dict[str, RawTable] = {}
        self._processes = ExitStack()
        self._shard_small: BenchShard | None = None
        self._bucket: Bucket | None = None
        self._replaced = 0
        self._bucket_shard_large: BucketShard | None = None

    def __enter__(self) -> "Workbench":
        """Return this workbench."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close and remove everything."""
        self._processes.close()
        for table in self._tables.values():
            table.close()
        shutil.rmtree(self.directory)

    @cached_property
    def small(self) -> Rows:
        """The platform corpus: 10,000 rows."""
        return self.corpus.rows(SMALL, "small")

    @cached_property
    def large(self) -> Rows:
        """The 100,000 rows that make a shard use its indexes."""
        return self.corpus.rows(LARGE, "large")

    @cached_property
    def small_queries(self) -> list[Query]:
        """Queries near rows of `small`."""
        return self.corpus.queries(self.small, QUERIES)

    @cached_property
    def large_queries(self) -> list[Query]:
        """Queries near rows of `large`."""
        return self.corpus.queries(self.large, QUERIES)

    def raw_small(self) -> RawTable:
        """Return the baseline over `small`; only for reading."""
        return self._table("small", self.small, is_indexed=True)

    def raw_small_flat(self) -> RawTable:
        """Return the same without a vector index."""
        return self._table("small-flat", self.small, is_indexed=False)

    def raw_large(self) -> RawTable:
        """Return the baseline over `large`; only for reading."""
        return self._table("large", self.large, is_indexed=True)

    def raw_to_write(self, name: str) -> RawTable:
        """Return a new baseline over `small` that may be written to."""
        return self._table(f"write-{name}", self.small, is_indexed=True)

    def shard_small(self) -> BenchShard:
        """Return a running shard over `small`, its rows flushed into the base."""
        if self._shard_small is None:
            shard = BenchShard.at(self.directory / "shard-small")
            self._processes.enter_context(running(shard))
            shard.load(self.small)
            shard.snapshot()
            self._shard_small = shard
        return self._shard_small

    @contextmanager
    def new_shard(self, name: str, settings: Mapping[str, str] | None = None) -> Iterator[BenchShard]:
        """Run a new, empty shard for a block."""
        shard = BenchShard.at(self.directory / f"shard-{name}", settings)
        with running(shard):
            yield shard

    def bucket(self) -> Bucket:
        """Return a bucket of a real S3 server on loopback, which is built first where that is still to be done."""
        if self._bucket is None:
            directory = self.directory / "s3"
            directory.mkdir()
            server = self._processes.enter_context(s3_server(directory))
            self._bucket = self._processes.enter_context(closing(Bucket(server)))
        return self._bucket

    @contextmanager
    def new_bucket_shard(self, name: str) -> Iterator[BucketShard]:
        """Run a new, empty shard in the bucket for a block."""
        shard = self.bucket().new_shard(self.directory / f"shard-{name}")
        with running(shard):
            yield shard

    def bucket_shard_large(self) -> BucketShard:
        """Return the running shard over `large` in the bucket; each measure leaves as many rows as it found."""
        if self._bucket_shard_large is None:
            shard = self.bucket().new_shard(self.directory / "shard-s3-large")
            self._processes.callback(self._kill_bucket_shard_large)
            shard.start()
            self._bucket_shard_large = shard
            shard.load(self.large)
            shard.snapshot()
            shard.await_engine("indexed")
        return self._bucket_shard_large

    def succeed_bucket_shard_large(self, successor: BucketShard) -> None:
        """Go on with another process of the same corpus."""
        self._bucket_shard_large = successor

    def _kill_bucket_shard_large(self) -> None:
        if self._bucket_shard_large is not None and self._bucket_shard_large.process.is_running:
            self._bucket_shard_large.process.kill()

    def replacement(self, count: int) -> Rows:
        """Return new content for the next `count` rows of `large`, in turn."""
        first = self._replaced % len(self.large)
        self._replaced += count
        ids = [self.large.ids[(first + index) % len(self.large)] for index in range(count)]
        return dataclasses.replace(self.corpus.rows(count, "replacement"), ids=ids)

    def _table(self, name: str, rows: Rows, *, is_indexed: bool) -> RawTable:
        if name not in self._tables:
            self._tables[name] = RawTable(self.directory / name, rows, is_indexed=is_indexed)
        return self._tables[name]
