"""What the documents tell people to set is there to be set."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from helm.documents import rows
from helm.values import Values

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/install.md", "helm/groundplane/README.md"]
VALUES = {".".join(row.path) for row in rows(Values())}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_value_on_a_command_line_is_declared(name):
    """The first command that somebody copies must not be refused."""
    told = re.findall(r"--set '?([A-Za-z.]+)=", (ROOT / name).read_text())

    assert told != []
    assert [value for value in told if value not in VALUES] == []


def test_the_values_of_the_installation_guide_are_taken(chart):
    """People begin with these, and change one."""
    text = (ROOT / "docs/install.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    values = yaml.safe_load(block)

    assert msgspec.convert(values, Values) != Values()
    assert "kind: Deployment" in chart.template(values)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_value_that_is_spoken_of_is_declared(name):
    """A value that was renamed lives on in prose."""
    parts = "|".join(sorted({path.split(".")[0] for path in VALUES if "." in path}))
    told = re.findall(rf"`((?:{parts})\.[A-Za-z.]+)`", (ROOT / name).read_text())

    assert [value for value in told if value not in VALUES] == []
