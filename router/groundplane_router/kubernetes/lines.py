"""A stream of bytes as whole lines, with a bound on what one line may hold."""

from groundplane_router.kubernetes.failures import bad_answer


class LineSplitter:
    """Takes pieces as they come and gives back the lines that are complete."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._open = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that `piece` completes, without their ends and without empty ones.

        Raises Unavailable for a line that is too long, as soon as that much of it is here.
        """
        self._open += piece
        *complete, rest = self._open.split(b"\n") if b"\n" in piece else [self._open]
        self._open = bytearray(rest)
        if any(len(line) > self._max_line_bytes for line in (*complete, rest)):
            raise bad_answer(f"with a line of more than {self._max_line_bytes} bytes")
        return [bytes(line) for line in complete if line.strip()]
