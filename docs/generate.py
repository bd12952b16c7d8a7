"""Writes docs/reference.md from the code: every setting, metric and reason, so that the page cannot disagree with it.

python docs/generate.py          write the page
python docs/generate.py --check  exit 1 if the page is not what the code says
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry

from groundplane.process.clock import SystemClock
from groundplane.process.metrics import new_registry
from groundplane.process.settings import SettingRow, settings_table
from groundplane.wire.names import Reason
from groundplane_router.metrics import RouterMetrics
from groundplane_router.settings import RouterSettings
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.settings import ShardSettings
from groundplane_shard.stores.s3 import S3Settings

PAGE = Path(__file__).with_name("reference.md")
_HEAD = """# Reference

Made from the code by `python docs/generate.py`; a test compares the two.
"""


def render() -> str:
    """Return the whole page."""
    router, shard = new_registry(), new_registry()
    RouterMetrics(router, SystemClock())
    ShardMetrics(shard)
    parts = [
        _HEAD,
        "## Settings of the router\n",
        _settings(settings_table(RouterSettings)),
        "## Settings of the shard\n",
        _settings(settings_table(ShardSettings)),
        "## Settings of a shard's bucket\n",
        "Read where `GROUNDPLANE_OBJECT_STORE` is set.\n",
        _settings(settings_table(S3Settings)),
        "## Metrics of the router\n",
        _metrics(router),
        "## Metrics of the shard\n",
        _metrics(shard),
        "## Reasons of unavailability\n",
        "\n".join(f"- `{reason}`" for reason in Reason) + "\n",
    ]
    return "\n".join(parts)


def _settings(rows: Iterable[SettingRow]) -> str:
    lines = [f"| `{row.variable}` | {_code(row.default)} | {row.help_text} |" for row in rows]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *lines, ""])


def _metrics(registry: CollectorRegistry) -> str:
    lines = []
    for family in sorted(registry.collect(), key=lambda family: family.name):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |")
    return "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *lines, ""])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> int:
    """Write or check the page and return the exit code."""
    page = render()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() == page:
            return 0
        sys.stderr.write("docs/reference.md is not what the code says: run `make reference`\n")
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
