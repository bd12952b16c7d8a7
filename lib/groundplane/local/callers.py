"""Tokens for the person at the command line: signed with the data directory's own key, as a subject of one corpus."""

import time
from collections.abc import Callable

import msgspec

from groundplane.errors import Denied, InvalidInput
from groundplane.local.layout import DataDirectory
from groundplane.tokens import SigningKey
from groundplane.wire.directory import Access, CorpusEntry, Directory, Subject

TOKEN_SECONDS = 600
_RENEW_SECONDS = 60


class LocalToken:
    """A token that signs itself again before it expires."""

    def __init__(self, key: SigningKey, subject: Subject, now: Callable[[], float] = time.time) -> None:
        self._key = key
        self._subject = subject
        self._now = now
        self._token = ""
        self._expires_at = 0.0

    def __call__(self) -> str:
        """Return a token that is valid for at least a minute."""
        now = self._now()
        if now > self._expires_at - _RENEW_SECONDS:
            self._token = self._key.sign_caller(self._subject.name, now=now, seconds=TOKEN_SECONDS)
            self._expires_at = now + TOKEN_SECONDS
        return self._token


def read_directory(data: DataDirectory) -> Directory:
    """Return the corpora of a data directory. Raises InvalidInput if `groundplane up` never ran there."""
    try:
        return msgspec.json.decode(data.directory.read_bytes(), type=Directory)
    except OSError as error:
        raise InvalidInput(
            f"data directory {data.root} holds no installation: start groundplane up --data there, or name another"
        ) from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{data.directory} cannot be read: restart groundplane up to write it again") from error


def find_corpus(directory: Directory, tenant: str | None) -> CorpusEntry:
    """Return the corpus of `tenant`, None being the platform's. Raises InvalidInput that lists the tenants there are."""
    for corpus in directory.corpora:
        if corpus.tenant == tenant:
            return corpus
    known = ", ".join(sorted(corpus.tenant for corpus in directory.corpora if corpus.tenant is not None)) or "none"
    wanted = "platform corpus" if tenant is None else f"tenant {tenant[:64]!r}"
    raise InvalidInput(f"{wanted} does not exist here: tenants are {known}", field="tenant")


def find_subject(corpus: CorpusEntry, access: Access) -> Subject:
    """Return the first subject of `corpus` that has `access`. Raises Denied (403) if there is none."""
    for grant in corpus.grants:
        if access in grant.access:
            return grant.subject
    raise Denied(
        f"no subject of {corpus.name} has {access} access: add one to its manifest and restart groundplane up",
        status=403,
    )


def local_token(data: DataDirectory, tenant: str | None, access: Access) -> LocalToken:
    """Return the token of the first subject of `tenant` (None: the platform) that has `access`."""
    subject = find_subject(find_corpus(read_directory(data), tenant), access)
    return LocalToken(SigningKey.load(data.caller_key), subject)
