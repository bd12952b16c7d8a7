"""Groundplane: grounds LLM agents in their own tenant's records.

    from groundplane import Client

    with Client.from_environment() as client:
        answer = client.ground("How do I rotate a service token?")

The names load when they are first used: router and shard share this package and have no use for an HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groundplane.client import (
        AsyncClient,
        Client,
        ClientError,
        ClientOptions,
        DocumentInput,
        NotAuthorised,
        RequestRefused,
        RetrievalUnavailable,
        ServiceUnreachable,
        WriteOutcomeUnknown,
    )

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ClientOptions",
    "DocumentInput",
    "NotAuthorised",
    "RequestRefused",
    "RetrievalUnavailable",
    "ServiceUnreachable",
    "WriteOutcomeUnknown",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("groundplane.client"), name)
    raise AttributeError(f"module 'groundplane' has no attribute {name!r}")
