"""Where a client finds the router and its token: arguments, a file that is re-read when it changes, or the environment."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from groundplane.client.errors import NotAuthorised
from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting

MAX_TOKEN_BYTES = 16 * 1024

Token = str | Path | Callable[[], str]
"""A token, a file that holds it, or whatever returns it when it is called."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address and token from the environment."""

    url: Annotated[str | None, setting("GROUNDPLANE_URL", "address of the router, such as http://127.0.0.1:8080")] = (
        None
    )
    token: Annotated[str | None, setting("GROUNDPLANE_TOKEN", "the caller's token", secret=True)] = None
    token_file: Annotated[
        str | None, setting("GROUNDPLANE_TOKEN_FILE", "file of the token, re-read when it changes")
    ] = None


class TokenFile:
    """A token in a file that its owner renews, as Kubernetes does with projected ServiceAccount tokens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        """Return the token, read again only if the file is another one. Raises NotAuthorised if there is none."""
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            raise NotAuthorised(f"token file {self._path} cannot be read: expected the caller's token in it") from error
        if not self._token:
            raise NotAuthorised(f"token file {self._path} is empty: expected the caller's token in it")
        return self._token


def token_source(token: Token) -> Callable[[], str]:
    """Return what brings the token for each request."""
    if isinstance(token, Path):
        return TokenFile(token)
    if isinstance(token, str):
        stripped = token.strip()
        if not stripped or not stripped.isascii() or not stripped.isprintable():
            raise InvalidInput("token is empty or holds characters that no token has: give the caller's token")
        return lambda: stripped
    return token


def from_environment(environment: Mapping[str, str]) -> tuple[str, Token]:
    """Return address and token of the environment. Raises InvalidInput that names the variable that is missing."""
    settings = read_settings(ClientSettings, environment)
    if settings.url is None:
        raise InvalidInput("GROUNDPLANE_URL is not set: address of the router, such as http://127.0.0.1:8080")
    if settings.token is not None:
        return settings.url, settings.token
    if settings.token_file is not None:
        return settings.url, Path(settings.token_file)
    raise InvalidInput("neither GROUNDPLANE_TOKEN nor GROUNDPLANE_TOKEN_FILE is set: give the caller's token")
