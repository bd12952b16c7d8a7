"""Writes from the code what must not disagree with it: docs/reference.md (settings, metrics, reasons), the CRD, the chart's values.

python docs/generate.py          write the files
python docs/generate.py --check  exit 1 if a file is not what the code says
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from groundplane.api.crd import tenant_corpus_crd
from groundplane.process.clock import SystemClock
from groundplane.process.metrics import new_registry
from groundplane.process.settings import SettingRow, settings_table
from groundplane.wire.names import Reason
from groundplane_operator.reasons import Reason as ConditionReason
from groundplane_operator.settings import OperatorSettings
from groundplane_router.metrics import RouterMetrics
from groundplane_router.settings import RouterSettings
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.settings import ShardSettings
from groundplane_shard.stores.s3 import S3Settings

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm/groundplane"
sys.path.append(str(ROOT))  # a program that is started as a file finds only what lies beside it

from helm import documents  # noqa: E402 - it is found since the line above

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
        "## Settings of the operator\n",
        _settings(settings_table(OperatorSettings)),
        "## Metrics of the router\n",
        _metrics(router),
        "## Metrics of the shard\n",
        _metrics(shard),
        "## Reasons of unavailability\n",
        "\n".join(f"- `{reason}`" for reason in Reason) + "\n",
        "## Reasons of a TenantCorpus's conditions and events\n",
        "\n".join(
            [
                "| reason | it means |",
                "| --- | --- |",
                *(f"| `{each}` | {each.meaning} |" for each in ConditionReason),
                "",
            ]
        ),
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


def render_crd() -> str:
    """Return the CustomResourceDefinition as YAML."""
    head = "# Made from groundplane.api.v1alpha1 by `python docs/generate.py`; a test compares the two.\n"
    return head + yaml.safe_dump(tenant_corpus_crd(), sort_keys=False, width=120)


def files() -> Mapping[Path, str]:
    """Return every generated file with what it has to hold."""
    crd = render_crd()
    readme = CHART / "README.md"
    return {
        ROOT / "docs/reference.md": render(),
        ROOT / "crds/groundplane.dev_tenantcorpora.yaml": crd,
        CHART / "templates/crd.yaml": documents.render_crd_template(crd),
        CHART / "values.yaml": documents.render_values(),
        CHART / "values.schema.json": documents.render_schema(),
        readme: documents.render_readme(readme.read_text()),
    }


def main() -> int:
    """Write or check the files and return the exit code."""
    wrong = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv[1:]:
        for path in wrong:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what the code says: run `make reference`\n")
        return 1 if wrong else 0
    for path, text in wrong.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
