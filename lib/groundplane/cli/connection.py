"""Whose request it is and where it goes: the options that every command on a corpus shares."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from groundplane.client import Client, ClientOptions
from groundplane.client.credentials import Token
from groundplane.errors import InvalidInput
from groundplane.local.callers import local_token, read_directory
from groundplane.local.layout import DataDirectory
from groundplane.wire.directory import Access

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_TABLE_OR_JSON = click.Choice(["table", "json"])


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared options said."""

    url: str | None
    token_file: Path | None
    token: str | None
    data: Path
    tenant: str | None
    is_platform: bool
    timeout_seconds: float | None = None
    """How long one call may take; None: as long as the client's defaults say."""

    @property
    def is_local(self) -> bool:
        """True if a token of the data directory is asked for."""
        return self.tenant is not None or self.is_platform

    @property
    def has_token(self) -> bool:
        """True if the caller brought a token."""
        return self.token_file is not None or self.token is not None

    def open(self, access: Access, options: ClientOptions = ClientOptions()) -> Client:  # noqa: B008 - frozen
        """Return a client that acts with `access`. Raises click.UsageError or InvalidInput that says what is missing."""
        token = self._token_for(access)
        if self.timeout_seconds is not None:
            options = msgspec.structs.replace(
                options, read_timeout_seconds=self.timeout_seconds, write_timeout_seconds=self.timeout_seconds
            )
        return Client(self.router_url(), token, options=options)

    def router_url(self) -> str:
        """Return the router's address: --url, or where the data directory's own router answers."""
        if self.url is not None:
            return self.url
        running = DataDirectory(self.data).read_running()
        if running is None:
            raise InvalidInput(
                f"no router is known: nothing runs on data directory {self.data}; start groundplane up --data "
                f"{self.data}, or name the router with --url"
            )
        return running.url

    def as_tenant(self, tenant: str | None) -> "Connection":
        """Return the same connection as `tenant`, None being the platform."""
        return msgspec.structs.replace(self, tenant=tenant, is_platform=tenant is None)

    def _token_for(self, access: Access) -> Token:
        if self.is_local:
            return local_token(DataDirectory(self.data), self.tenant, access)
        if self.token_file is not None:
            return self.token_file
        if self.token is not None:
            return self.token
        raise click.UsageError(f"say who asks: {self._local_choices()}, or --token-file FILE")

    def _local_choices(self) -> str:
        try:
            corpora = read_directory(DataDirectory(self.data)).corpora
        except InvalidInput:
            return "--tenant NAME or --platform on this machine"
        tenants = ", ".join(sorted(corpus.tenant for corpus in corpora if corpus.tenant is not None))
        return f"--tenant NAME ({tenants}) or --platform"


def default_data() -> Path:
    """Return the data directory that is meant when none is named."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "groundplane"


def data_option(command: CommandT) -> CommandT:
    """Add `--data`."""
    option = click.option(
        "--data", type=click.Path(file_okay=False, path_type=Path), envvar="GROUNDPLANE_DATA", default=default_data,
        show_default="$XDG_DATA_HOME/groundplane", help="Data directory of groundplane up. [env: GROUNDPLANE_DATA]",
    )  # fmt: skip
    return option(command)


def output_option(command: CommandT) -> CommandT:
    """Add `-o`."""
    return click.option(
        "-o", "--output", type=_TABLE_OR_JSON, default="table", show_default=True, help="Form of the answer."
    )(command)


def connection_options(command: CommandT) -> CommandT:
    """Add the options of a `Connection`, handed to the command as `connection`.

    A tenant that is typed, like no token at all, means this machine: the address that the environment names is
    another installation's and never gets a token of this one.
    """

    @functools.wraps(command)
    def gather(
        *, url: str | None, token_file: Path | None, data: Path, tenant: str | None, is_platform: bool,
        timeout: float | None, **rest: Any,
    ) -> Any:  # fmt: skip
        is_local = tenant is not None or is_platform
        if tenant is not None and is_platform:
            raise click.UsageError("--tenant and --platform exclude each other: keep one")
        if is_local and _is_typed("token_file"):
            raise click.UsageError("--token-file already says who asks: leave out --tenant and --platform")
        token = None if is_local else os.environ.get("GROUNDPLANE_TOKEN") or None
        token_file = None if is_local else token_file
        connection = Connection(
            url=url if _is_typed("url") or token or token_file else None,
            token_file=token_file,
            token=token,
            data=data,
            tenant=tenant,
            is_platform=is_platform,
            timeout_seconds=timeout,
        )
        return command(connection=connection, **rest)

    options = (
        click.option("--tenant", help="Act as this tenant, with a token of the data directory."),
        click.option("--platform", "is_platform", is_flag=True, help="Act as the platform team."),
        click.option("--url", envvar="GROUNDPLANE_URL", help="Address of the router. [env: GROUNDPLANE_URL]"),
        click.option(
            "--token-file", type=click.Path(path_type=Path), envvar="GROUNDPLANE_TOKEN_FILE",
            help="File of the caller's token. [env: GROUNDPLANE_TOKEN_FILE, GROUNDPLANE_TOKEN]",
        ),
        click.option(
            "--timeout", type=click.FloatRange(0.1, 3_600), metavar="SECONDS",
            help="Give up on a request after this long, repetitions included.  [default: 10; writes: 120]",
        ),
        data_option,
    )  # fmt: skip
    decorated: Any = gather
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # the same command with more options


def _is_typed(parameter: str) -> bool:
    """Return whether a parameter stands on the command line, not in the environment."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE
