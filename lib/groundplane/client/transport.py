"""What both shells share about httpx: time limits, replies, and which of its errors mean that nothing was sent."""

import ipaddress
from typing import Any

import httpx

from groundplane.client.calls import Call, Reply, error_without_reply
from groundplane.client.errors import ClientError
from groundplane.client.options import ClientOptions
from groundplane.errors import InvalidInput

LEAST_SECONDS = 0.001
"""For httpx, 0 seconds are no limit to connecting but no time for reading."""

_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    httpx.ProxyError,
)


def uses_proxies(url: str) -> bool:
    """Return whether requests to `url` go through the proxies that the environment names: not on this machine.

    Raises InvalidInput for what is no http or https URL.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"router address {url[:128]!r} is no URL: expected http://host:port") from error
    host = parsed.host
    if parsed.scheme not in {"http", "https"} or not host:
        raise InvalidInput(f"router address {url[:128]!r} names no http or https server: expected http://host:port")
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def limits_of(seconds: float, options: ClientOptions) -> httpx.Timeout:
    """Return the time limits of one attempt for which `seconds` are left."""
    left = max(seconds, LEAST_SECONDS)
    return httpx.Timeout(left, connect=min(left, options.connect_timeout_seconds))


def reply_of(response: httpx.Response) -> Reply:
    """Return `response` without httpx around it."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, body=response.content)


def error_of_transport(call: Call[Any], error: Exception) -> ClientError:
    """Return what httpx's `error` means for `call`."""
    problem = str(error) or type(error).__name__
    return error_without_reply(call, problem, was_sent=not isinstance(error, _NOT_SENT))
