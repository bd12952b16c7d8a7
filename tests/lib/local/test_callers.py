"""The command line acts as a subject of the manifests, with no more than its access."""

import pytest

from groundplane.errors import Denied, InvalidInput
from groundplane.local.callers import LocalToken, find_corpus, find_subject
from groundplane.tokens import SigningKey
from groundplane.wire.directory import CorpusEntry, Directory, Grant, Subject
from groundplane.wire.names import CorpusKey, Incarnation, TenantId

READER = Subject(namespace="agents", service_account="reader")
WRITER = Subject(namespace="agents", service_account="writer")


def entry(tenant: str | None, *grants: Grant) -> CorpusEntry:
    return CorpusEntry(
        key=CorpusKey("k"), name=f"default/{tenant}", tenant=None if tenant is None else TenantId(tenant),
        incarnation=Incarnation("0b8f7a52-4a55-4f7e-9f3e-0d2c5f3a7f11"), endpoint=None, state="ready", grants=grants,
    )  # fmt: skip


ACME = entry("acme", Grant(subject=READER, access=("read",)), Grant(subject=WRITER, access=("read", "write")))


def test_the_first_subject_with_the_access_is_taken():
    """Asking uses the agent's subject, indexing the indexer's."""
    assert find_subject(ACME, "read") == READER
    assert find_subject(ACME, "write") == WRITER


def test_access_that_nobody_has_is_denied():
    """The command line must not be able to do what no manifest grants."""
    with pytest.raises(Denied, match="write access") as caught:
        find_subject(entry("acme", Grant(subject=READER, access=("read",))), "write")

    assert caught.value.status == 403


def test_the_platform_is_no_tenant():
    """A tenant named platform is another corpus."""
    directory = Directory(corpora=(entry("platform"), entry(None)))

    assert find_corpus(directory, None).tenant is None
    assert find_corpus(directory, "platform").tenant == "platform"


def test_an_unknown_tenant_is_answered_with_those_there_are():
    """A misspelt name is mended by reading the error."""
    with pytest.raises(InvalidInput, match="tenants are acme, globex"):
        find_corpus(Directory(corpora=(entry("globex"), entry("acme"), entry(None))), "acmee")


def test_a_token_signs_itself_again_before_it_expires():
    """Indexing may take longer than a token lives."""
    now = 1_000.0
    token = LocalToken(SigningKey.generate(), READER, now=lambda: now)
    first = token()

    now = 1_500.0
    assert token() == first
    now = 1_541.0
    assert token() != first
