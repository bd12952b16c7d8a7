"""The transcript of the demo."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from groundplane.cli.answers import SCOPE_STYLE, scores_text, snippet
from groundplane.cli.demo_checks import Asked, StepResult
from groundplane.cli.terminal import printable
from groundplane.wire.names import Scope
from groundplane.wire.public import Hit

SNIPPET_CHARACTERS = 130


def print_step(console: Console, result: StepResult, number: int) -> None:
    """Write what one step asked, what came back, and a mark for each expectation."""
    console.print()
    console.print(Text(f"{number}. {result.title}", "bold"))
    for asked in result.asked:
        _print_asked(console, asked)
    for expectation in result.expectations:
        mark = ("✓", "green") if expectation.is_met else ("✗", "bold red")
        console.print(Text.assemble("   ", mark, f" {expectation.text}"))


def print_summary(console: Console, results: Sequence[StepResult]) -> int:
    """Write what failed, if anything did, and return the exit code."""
    expectations = [(result.title, each) for result in results for each in result.expectations]
    failed = [(title, each) for title, each in expectations if not each.is_met]
    console.print()
    for title, each in failed:
        console.print(Text.assemble(("failed: ", "bold red"), f"{title}: {each.text}"))
    met = len(expectations) - len(failed)
    style = "bold red" if failed else "bold green"
    console.print(Text(f"{met} of {len(expectations)} expectations met in {len(results)} steps", style))
    return 1 if failed else 0


def _print_asked(console: Console, asked: Asked) -> None:
    console.print(Text.assemble("   ", (f"{asked.who:<7}", "cyan"), printable(asked.request)))
    console.print(Text.assemble("       → ", (printable(asked.outcome), "bold")))
    for hit in asked.hits:
        console.print(_hit_line(hit))
    if asked.hits:
        console.print(Padding(Text(snippet(asked.hits[0], SNIPPET_CHARACTERS), "italic"), (0, 0, 0, 9), expand=False))


def _hit_line(hit: Hit) -> Text:
    scope = hit.scope.value
    return Text.assemble(
        f"         {hit.score:.3f}  ",
        (f"{scope:<9}", SCOPE_STYLE[scope]),
        printable(hit.chunk_id if hit.scope is Scope.LOCAL else hit.doc_id),
        (scores_text(hit), "dim"),
    )
