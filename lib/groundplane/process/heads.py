"""What the head of a request must be so that every program on its way reads the same request from it.

A proxy in front may have checked one of two `Authorization` headers, or found another end of the body than we do: what one
takes for a body the other takes for the next request, of somebody else. The parser refuses two lengths, a length beside
`Transfer-Encoding`, bare line ends and folded lines; this module refuses what it lets pass. Pure.

Sources: RFC 9112, sections 3.2 (Host) and 6.1 (Transfer-Encoding); RFC 9110, section 7.8 (Upgrade).
"""

import re
from collections.abc import Sequence
from typing import Final

VERSIONS: Final = frozenset({"1.0", "1.1"})
STANDING_ONCE: Final = (b"host", b"authorization", b"content-type", b"content-encoding", b"transfer-encoding")
"""Headers of which two programs may pick different ones."""

_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=:\[\]-]*")
"""RFC 3986's characters of a host and a port, without the comma that some proxies join two headers with."""

Header = tuple[bytes, bytes]


def head_fault(version: str, headers: Sequence[Header]) -> str | None:
    """Return what is wrong with a head, None if nothing is; never quotes a value. Header names are lower case."""
    if version not in VERSIONS:
        return "request is of another HTTP version: expected 1.1 or 1.0"
    for name in STANDING_ONCE:
        count = sum(1 for found, _ in headers if found == name)
        if count > 1:
            return f"request has {count} {name.decode()} headers: expected one"
    values = dict(headers)
    return _host_fault(version, values.get(b"host")) or _body_fault(version, values) or _upgrade_fault(headers)


def _host_fault(version: str, host: bytes | None) -> str | None:
    if host is None:
        return "request has no host header: expected one in HTTP/1.1" if version == "1.1" else None
    return (
        None if _HOST.fullmatch(host) else "host header is no host: expected a name or an address, and perhaps a port"
    )


def _body_fault(version: str, values: dict[bytes, bytes]) -> str | None:
    encoding = values.get(b"transfer-encoding")
    if encoding is None:
        return None
    if version == "1.0":
        return "request of HTTP/1.0 has a transfer-encoding: expected a content-length"
    return None if encoding.lower() == b"chunked" else "transfer-encoding is unknown: expected chunked alone"


def _upgrade_fault(headers: Sequence[Header]) -> str | None:
    """Return a fault for a switch to another protocol: after such a head the parser reads no body and no next request."""
    options = [
        option.strip() for name, value in headers if name == b"connection" for option in value.lower().split(b",")
    ]
    if b"upgrade" not in options or all(name != b"upgrade" for name, _ in headers):
        return None
    return "request asks for another protocol: expected HTTP/1.1 without upgrade; tell the client to use 1.1"
