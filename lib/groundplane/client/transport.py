"""What both shells share about httpx: time limits, replies, and which of its errors mean that nothing was sent."""

from typing import Any

import httpx

from groundplane.client.calls import Call, Reply, error_without_reply
from groundplane.client.errors import ClientError
from groundplane.client.options import ClientOptions

_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    httpx.ProxyError,
)


def limits_of(call: Call[Any], options: ClientOptions) -> httpx.Timeout:
    """Return the time limits of `call`."""
    seconds = options.write_timeout_seconds if call.is_write else options.read_timeout_seconds
    return httpx.Timeout(seconds, connect=options.connect_timeout_seconds)


def reply_of(response: httpx.Response) -> Reply:
    """Return `response` without httpx around it."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, body=response.content)


def error_of_transport(call: Call[Any], error: Exception) -> ClientError:
    """Return what httpx's `error` means for `call`."""
    problem = str(error) or type(error).__name__
    return error_without_reply(call, problem, was_sent=not isinstance(error, _NOT_SENT))
