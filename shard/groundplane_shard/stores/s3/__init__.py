"""The object store in a bucket of S3 or of a server that speaks its protocol; docs/object-stores.md says which."""

from groundplane_shard.stores.s3.credentials import (
    Credentials,
    CredentialSource,
    FixedCredentials,
    MountedCredentials,
    credential_source,
)
from groundplane_shard.stores.s3.settings import S3Settings, StoreLocation, parse_store_url
from groundplane_shard.stores.s3.store import S3Store

__all__ = [
    "CredentialSource",
    "Credentials",
    "FixedCredentials",
    "MountedCredentials",
    "S3Settings",
    "S3Store",
    "StoreLocation",
    "credential_source",
    "parse_store_url",
]
