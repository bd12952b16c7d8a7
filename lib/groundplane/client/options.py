"""How patient a client is, and how it cuts what it sends."""

from typing import Annotated

import msgspec


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time limits are those of one request; reads alone are repeated, and only when the service names a time."""

    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    write_timeout_seconds: float = 120.0  # a batch is embedded before it is acknowledged
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    max_wait_seconds: float = 5.0  # a longer Retry-After is not waited for
    batch_documents: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50
    batch_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=8 * 1024 * 1024)] = 1024 * 1024
