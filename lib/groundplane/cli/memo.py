"""`groundplane memo`."""

import sys
from typing import Any

import click
import msgspec

from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.terminal import print_json, print_table, warn

_NAME = click.argument("name")
_FINGERPRINT = click.argument("fingerprint")


@click.group()
def memo() -> None:
    """Store, fetch and delete approved answers, each under exactly one NAME and FINGERPRINT."""


@memo.command("put")
@_NAME
@_FINGERPRINT
@click.argument("response", default="-")
@output_option
@connection_options
def put_memo(connection: Connection, *, name: str, fingerprint: str, response: str, output: str) -> None:
    """Store RESPONSE, any JSON; without it, or for -, what stands on stdin."""
    content = _parse(sys.stdin.read() if response == "-" else response)
    with connection.open("write") as client:
        answer = client.put_memo(name, fingerprint, content)
    print_json(answer) if output == "json" else print_table(("memo", "outcome"), [(f"{name} {fingerprint}", "stored")])


@memo.command("get")
@_NAME
@_FINGERPRINT
@output_option
@connection_options
def get_memo(connection: Connection, *, name: str, fingerprint: str, output: str) -> None:
    """Show a stored response."""
    with connection.open("read") as client:
        answer = client.memo(name, fingerprint)
    if answer.stale:
        warn("the corpora have changed since this memo was stored")
    print_json(answer if output == "json" else answer.response)


@memo.command("delete")
@_NAME
@_FINGERPRINT
@output_option
@connection_options
def delete_memo(connection: Connection, *, name: str, fingerprint: str, output: str) -> int:
    """Delete a memo. Exits with 1 if there was none."""
    with connection.open("write") as client:
        answer = client.delete_memo(name, fingerprint)
    outcome = "deleted" if answer.found else "not there"
    print_json(answer) if output == "json" else print_table(("memo", "outcome"), [(f"{name} {fingerprint}", outcome)])
    return 0 if answer.found else 1


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"RESPONSE is no JSON: {error}; put text in quotes, such as '\"yes\"'") from error
