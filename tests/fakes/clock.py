"""A clock that only moves when a test moves it."""


class ManualClock:
    """`sleep` moves the time and returns at once."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.wall = now
        self.steady = 1_000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds
