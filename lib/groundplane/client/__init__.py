"""Client of the router: `Client` and `AsyncClient`, thin shells around one core that does no I/O.

`calls` builds requests and reads answers, `errors` says what a failure asks of the caller, `batches` cuts what is to be
indexed, `credentials` finds address and token. Only `synchronous` and `asynchronous` talk to the network.
"""

from groundplane.client.asynchronous import AsyncClient
from groundplane.client.credentials import TokenFile
from groundplane.client.errors import (
    ClientError,
    NotAuthorised,
    RequestRefused,
    RetrievalUnavailable,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.client.options import ClientOptions
from groundplane.client.synchronous import Client
from groundplane.wire.public import DocumentInput

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
    "TokenFile",
    "WriteOutcomeUnknown",
]
