"""How far a copy of files is, for logs and people: counted as the store answers, told every few seconds and at the end."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from groundplane.process.clock import Clock
from groundplane_shard.log.operations import Operation, Result, Stored, Upload, Verified, Verify

TELL_SECONDS = 5.0
MIB = 1024 * 1024


class Amount(msgspec.Struct, frozen=True):
    """A number of files and their bytes."""

    files: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> "Amount":
        """Return the amount with one more file."""
        return Amount(self.files + 1, self.size_bytes + size_bytes)


class Progress:
    """The copy of files of known sizes; what was done to each is a step: downloaded, uploaded, verified."""

    def __init__(self, sizes: Iterable[int], clock: Clock, tell: Callable[["Progress"], None]) -> None:
        """Count against `sizes`, in bytes; `tell` gets this object while files are done and once more by `finish`."""
        self.total = Amount()
        for size in sizes:
            self.total = self.total.plus(size)
        self._clock = clock
        self._tell = tell
        self._done: dict[str, Amount] = {}
        self._told_at = clock.monotonic()

    def add(self, step: str, size_bytes: int) -> None:
        """Count one file of which `step` is done."""
        self._done[step] = self.done(step).plus(size_bytes)
        now = self._clock.monotonic()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self._tell(self)

    def watch(self, operation: Operation, result: Result) -> None:
        """Count what an answer of the store says: a `Watch` of the driver."""
        match operation, result:
            case Upload(_, file), Stored():
                self.add("uploaded", file.size)
            case Verify(_, size, _), Verified():
                self.add("verified", size)
            case _:
                return

    def finish(self) -> None:
        """Tell of the end."""
        self._tell(self)

    def done(self, step: str) -> Amount:
        """Return how much of it is done."""
        return self._done.get(step, Amount())

    def shown(self, step: str) -> str:
        """Return the step's progress for people, as `34/120 MiB in 5/31 files`."""
        done = self.done(step)
        sizes = f"{done.size_bytes // MIB}/{-(-self.total.size_bytes // MIB)} MiB"
        return f"{sizes} in {done.files}/{self.total.files} files"

    def fields(self) -> Mapping[str, int]:
        """Return all counts as fields of a log line."""
        amounts = {"": self.total, **{f"{step}_": amount for step, amount in sorted(self._done.items())}}
        return {
            f"{prefix}{name}": value
            for prefix, amount in amounts.items()
            for name, value in (("files", amount.files), ("bytes", amount.size_bytes))
        }
