"""The keys of the role that the cloud gives to this machine or pod, fetched through `minio` and renewed before they expire.

Where they come from is said by the variables that clouds set themselves, which `minio` reads: a web identity token
(AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), the container's credentials (AWS_CONTAINER_CREDENTIALS_FULL_URI or
…_RELATIVE_URI), and if there is neither, the metadata service of the machine. Only asked for by an explicit setting: a
metadata service answers anybody, so keys must not come from one by mistake.
"""

import threading
from collections.abc import Callable
from xml.etree.ElementTree import ParseError

import urllib3
from minio.credentials.credentials import Credentials as FetchedKeys
from minio.credentials.providers import IamAwsProvider, Provider
from minio.error import MinioException
from urllib3.exceptions import HTTPError

from groundplane.errors import Unavailable
from groundplane_shard.stores.s3.credentials import Credentials

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
_TRIES = 2


class CloudCredentials:
    """Keys that expire; whoever asks when they do waits for the next ones."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint` is that of the token service, "" for the cloud's own."""
        self._new_provider: Callable[[], Provider] = lambda: _provider(endpoint)
        self._lock = threading.Lock()
        self._fetched: FetchedKeys | None = None

    def current(self) -> Credentials:
        """Return the keys, fetched anew if they are about to expire. Raises Unavailable with code `store_denied`."""
        with self._lock:
            if self._fetched is None or self._fetched.is_expired():
                self._fetched = self._fetch()
            return _keys(self._fetched)

    def at_hand(self) -> Credentials | None:
        """Return the keys if they are still valid."""
        fetched = self._fetched
        return None if fetched is None or fetched.is_expired() else _keys(fetched)

    def reload(self, refused: Credentials) -> bool:
        """Fetch the keys again, whatever their time says."""
        with self._lock:
            self._fetched = self._fetch()
            return _keys(self._fetched) != refused

    def _fetch(self) -> FetchedKeys:
        try:
            return self._new_provider().retrieve()
        except (HTTPError, MinioException, OSError, ValueError, KeyError, ParseError) as error:
            raise Unavailable(
                f"the cloud gave no keys for the bucket: {type(error).__name__}: expected a role of this machine or pod; "
                "give it one, or set GROUNDPLANE_S3_ACCESS_KEY",
                code="store_denied",
            ) from error


def _provider(endpoint: str) -> Provider:
    pool = urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS),
        retries=urllib3.Retry(total=_TRIES, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
    )
    return IamAwsProvider(custom_endpoint=endpoint or None, http_client=pool)


def _keys(fetched: FetchedKeys) -> Credentials:
    return Credentials(fetched.access_key, fetched.secret_key, fetched.session_token or "")
