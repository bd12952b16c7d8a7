"""What was measured, beside what was promised: a table for people, a flat JSON file for machines."""

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.bars import BARS, Bar
from bench.measure import Figure


class Report:
    """The figures of one run. `due` are the keys of bars that this run has to show."""

    def __init__(self, due: frozenset[str]) -> None:
        self._due = due
        self._figures: dict[str, Figure] = {}

    def add(self, figures: Mapping[str, Figure]) -> None:
        """Take in figures by key."""
        self._figures.update(figures)

    @property
    def is_good(self) -> bool:
        """Say whether every bar that is due was measured and met."""
        return all(self._is_met(bar) for bar in BARS if bar.key in self._due)

    def print(self, console: Console) -> None:
        """Show bars first, then the figures that they are made of."""
        table = Table("key", "bar", "measured", "spread", "ok", title="Groundplane against raw LanceDB, same rows")
        table.columns[0].no_wrap = True
        for column in table.columns[1:4]:
            column.justify, column.no_wrap = "right", True
        for bar in BARS:
            if bar.key in self._due:
                ok = "[green]yes" if self._is_met(bar) else "[red]no"
                table.add_row(bar.key, str(bar), *_shown(self._figures.get(bar.key)), ok)
        table.add_section()
        for key in sorted(self._figures.keys() - {bar.key for bar in BARS}):
            table.add_row(key, "", *_shown(self._figures[key]), "")
        console.print(table)

    def write(self, path: Path) -> None:
        """Write {key: median} to `path`; what was not measured is absent."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flat = {key: round(figure.value, 4) for key, figure in sorted(self._figures.items())}
        path.write_text(json.dumps(flat, indent=2) + "\n")

    def _is_met(self, bar: Bar) -> bool:
        figure = self._figures.get(bar.key)
        return figure is not None and bar.is_met(figure.value)


def _shown(figure: Figure | None) -> tuple[str, str]:
    if figure is None:
        return "not measured", ""
    return f"{figure.value:,.4g}", f"{figure.low:,.4g} to {figure.high:,.4g}"
