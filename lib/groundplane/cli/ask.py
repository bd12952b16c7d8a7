"""`groundplane ask` and `groundplane evidence`."""

from typing import Unpack

import click
import msgspec

from groundplane.cli.answers import print_evidence, print_ground
from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.terminal import print_json
from groundplane.client.calls import EvidenceOptions, GroundOptions
from groundplane.wire.filters import Filter

EXIT_UNAVAILABLE = 5


class FilterParameter(click.ParamType[Filter]):
    """A filter as JSON."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Filter:
        """Return the filter, or fail with what is wrong about it."""
        try:
            return msgspec.json.decode(str(value), type=Filter)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            example = '{"op": "eq", "key": "topic", "value": "travel"}'
            return self.fail(f"{error}; expected a filter such as {example}", param, ctx)


_K = click.option("-k", "--hits", "k", type=click.IntRange(1, 50), default=5, show_default=True, help="Hits at most.")
_FILTER = click.option("--filter", type=FilterParameter(), help="Only documents that match this JSON filter.")
_EXPLAIN = click.option("--explain", is_flag=True, help="Show how each hit passed the floor.")
_POSITION = click.option("--min-position", help="Wait until this position, which a write returned, is searched.")


@click.command()
@click.argument("query")
@_K
@_FILTER
@_EXPLAIN
@_POSITION
@click.option(
    "--memo", nargs=2, metavar="NAME FINGERPRINT", help="Ask the memo of exactly this name and fingerprint first."
)
@click.option("--fresh", is_flag=True, help="Refuse a memo whose basis has moved on.")
@output_option
@connection_options
def ask(
    connection: Connection, *, query: str, memo: tuple[str, str] | None, output: str, **options: Unpack[GroundOptions]
) -> int:
    """Ask QUERY through every tier: memo, hybrid search, keyword search.

    Exits with 5 if the corpora could not be searched and no other tier answered.
    """
    if memo is not None:
        options["name"], options["fingerprint"] = memo
    with connection.open("read") as client:
        answer = client.ground(query, **options)
    print_json(answer) if output == "json" else print_ground(answer)
    return EXIT_UNAVAILABLE if answer.status == "degraded" and answer.tier == "none" else 0


@click.command()
@click.argument("query")
@_K
@_FILTER
@_EXPLAIN
@_POSITION
@click.option("--partial", flag_value="allow", help="Take what one corpus holds if the other cannot be searched.")
@output_option
@connection_options
def evidence(connection: Connection, *, query: str, output: str, **options: Unpack[EvidenceOptions]) -> int:
    """Search the corpora for QUERY: hybrid search alone, or exit code 5 if that is not possible."""
    with connection.open("read") as client:
        answer = client.evidence(query, **options)
    print_json(answer) if output == "json" else print_evidence(answer)
    return 0
