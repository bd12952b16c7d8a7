"""What was measured, beside what was promised: a table for people, a flat JSON file for machines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.bars import Bar
from bench.measure import Figure


class Report:
    """The figures of one run. `bars` are those that this run has to show."""

    def __init__(self, bars: Sequence[Bar], title: str) -> None:
        self._bars = bars
        self._title = title
        self._figures: dict[str, Figure] = {}

    def add(self, figures: Mapping[str, Figure]) -> None:
        """Take in figures by key."""
        self._figures.update(figures)

    @property
    def is_good(self) -> bool:
        """Say whether every bar that is due was measured and met."""
        return all(self._is_met(bar) for bar in self._bars)

    def print(self, console: Console) -> None:
        """Show bars first, then the figures that they are made of."""
        table = Table("key", "bar", "measured", "spread", "ok", title=self._title)
        table.columns[0].no_wrap = True
        for column in table.columns[1:4]:
            column.justify, column.no_wrap = "right", True
        for bar in self._bars:
            ok = "[green]yes" if self._is_met(bar) else "[red]no"
            table.add_row(bar.key, str(bar), *_shown(self._figures.get(bar.key)), ok)
        table.add_section()
        for key in sorted(self._figures.keys() - {bar.key for bar in self._bars}):
            table.add_row(key, "", *_shown(self._figures[key]), "")
        console.print(table)

    def write(self, path: Path, *, keeps_others: bool = False) -> None:
        """Write {key: median} to `path`; what was not measured is absent, unless another program's keys are kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        others = json.loads(path.read_text()) if keeps_others and path.exists() else {}
        flat = {key: round(figure.value, 4) for key, figure in self._figures.items()}
        path.write_text(json.dumps({**others, **flat}, indent=2, sort_keys=True) + "\n")

    def _is_met(self, bar: Bar) -> bool:
        figure = self._figures.get(bar.key)
        return figure is not None and bar.is_met(figure.value)


def _shown(figure: Figure | None) -> tuple[str, str]:
    if figure is None:
        return "not measured", ""
    return f"{figure.value:,.4g}", f"{figure.low:,.4g} to {figure.high:,.4g}"
