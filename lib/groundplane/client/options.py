"""How patient a client is, and how it cuts what it sends."""

from typing import Annotated

import msgspec


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time limits are those of one call, repetitions and the waits between them included.

    Reads alone are repeated, only when the service names a time, and only if what is left holds another attempt that
    takes as long as the last.
    """

    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 10.0  # a router answers within 5 s unless it is told otherwise
    write_timeout_seconds: float = 120.0  # a batch is embedded before it is acknowledged
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    max_wait_seconds: float = 5.0  # a longer Retry-After is not waited for
    batch_documents: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50
    batch_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=8 * 1024 * 1024)] = 1024 * 1024
