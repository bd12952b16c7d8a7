"""`groundplane ask` and `groundplane evidence`."""

import click
import msgspec

from groundplane.cli.answers import print_evidence, print_ground
from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.terminal import print_json
from groundplane.client.calls import GroundOptions
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
_FILTER = click.option(
    "--filter", "filter_", type=FilterParameter(), help="Only documents that match this JSON filter."
)
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
    connection: Connection, *, query: str, k: int, filter_: Filter | None, explain: bool, min_position: str | None,
    memo: tuple[str, str] | None, fresh: bool, output: str,
) -> int:  # fmt: skip
    """Ask QUERY through every tier: memo, hybrid search, keyword search.

    Exits with 5 if the corpora could not be searched and no other tier answered.
    """
    options = GroundOptions(k=k, filter=filter_, explain=explain, min_position=min_position, fresh=fresh)
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
@click.option("--partial", is_flag=True, help="Take what one corpus holds if the other cannot be searched.")
@output_option
@connection_options
def evidence(
    connection: Connection, *, query: str, k: int, filter_: Filter | None, explain: bool, min_position: str | None,
    partial: bool, output: str,
) -> int:  # fmt: skip
    """Search the corpora for QUERY: hybrid search alone, or exit code 5 if that is not possible."""
    with connection.open("read") as client:
        answer = client.evidence(
            query, k=k, filter=filter_, explain=explain, min_position=min_position, partial="allow" if partial else None
        )
    print_json(answer) if output == "json" else print_evidence(answer)
    return 0
