"""The router's directory: which corpora exist, where their shards answer, and who may use them.

In a cluster it is built from the status that the operator wrote; on one machine `groundplane up` writes it as a file.
"""

from typing import Annotated, Literal

import msgspec

from groundplane.wire.names import CorpusKey, Incarnation, TenantId

Access = Literal["read", "write"]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Subject(_Entry, frozen=True, kw_only=True):
    """A Kubernetes ServiceAccount, or the same pair of names in local mode."""

    namespace: str
    service_account: str

    @property
    def name(self) -> str:
        """Return the name under which tokens carry this subject."""
        return f"system:serviceaccount:{self.namespace}:{self.service_account}"


class Grant(_Entry, frozen=True, kw_only=True):
    """What one subject may do with one corpus."""

    subject: Subject
    access: tuple[Access, ...]


class CorpusEntry(_Entry, frozen=True, kw_only=True):
    """One corpus. `tenant` is null for the platform's, and in a cluster, where the key says enough.

    `endpoint` is null while no shard of it answers. `state` is `ready`, or the open code that says why
    the corpus cannot be searched (`corpus_suspended`, …).
    """

    key: CorpusKey
    name: str
    tenant: TenantId | None
    incarnation: Incarnation
    endpoint: Annotated[str, msgspec.Meta(max_length=512)] | None
    state: str
    grants: tuple[Grant, ...]


class Directory(_Entry, frozen=True, kw_only=True):
    """All corpora of an installation, by key."""

    corpora: tuple[CorpusEntry, ...]
