"""HTTP/1.1 messages read whole from a stream and written again: as much of it as stores and their clients use."""

import asyncio

import msgspec

_OWN_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive"})


class Message(msgspec.Struct, frozen=True):
    """A request or an answer: its first line, its headers as they came, its body whole."""

    first_line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.first_line.split(" ")[0]

    @property
    def target(self) -> str:
        """Path and query of a request, as they were sent."""
        return self.first_line.split(" ")[1]

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.first_line.split(" ")[1])

    def encoded(self, *, connection: str, has_length: bool) -> bytes:
        """Return the bytes to send; the headers that belong to one connection are our own."""
        lines = [self.first_line, *(f"{name}: {value}" for name, value in self.headers)]
        if has_length:
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, f"connection: {connection}", "", ""]).encode("latin-1") + self.body


async def read_message(reader: asyncio.StreamReader, *, is_answer_to: str | None) -> Message | None:
    """Return the next message of a connection; None at its end. `is_answer_to`: the method of the request, if it is one."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first_line, *lines = head[:-4].split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    known = {name.lower(): value for name, value in headers}
    kept = tuple((name, value) for name, value in headers if name.lower() not in _OWN_HEADERS)
    message = Message(first_line, kept, b"")
    if is_answer_to is not None and not may_have_body(is_answer_to, message.status):
        length = (("content-length", known["content-length"]),) if "content-length" in known else ()
        return msgspec.structs.replace(message, headers=kept + length)
    if known.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    elif "content-length" in known:
        body = await reader.readexactly(int(known["content-length"]))
    else:
        body = b"" if is_answer_to is None else await reader.read()
    return msgspec.structs.replace(message, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(body)


def may_have_body(method: str, status: int) -> bool:
    """Whether an answer with this status to this method has a body, even if its headers announce one."""
    return method != "HEAD" and status not in {204, 304} and status >= 200
