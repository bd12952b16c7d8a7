"""What leaves a process is declared once; what is made from it must say the same."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = [
    "crds/groundplane.dev_tenantcorpora.yaml",
    "docs/reference.md",
    "helm/groundplane/README.md",
    "helm/groundplane/templates/crd.yaml",
    "helm/groundplane/values.schema.json",
    "helm/groundplane/values.yaml",
]


@pytest.fixture(scope="module")
def generated():
    return runpy.run_path(str(ROOT / "docs/generate.py"))["files"]()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_says_what_the_code_says(generated, name):
    """A setting, metric or field that the file does not know, or no longer exists, is found here and not by a user."""
    assert (ROOT / name).read_text() == generated[ROOT / name]


def test_every_generated_file_is_compared(generated):
    """A file that is added to the generator is compared too."""
    assert sorted(generated) == sorted(ROOT / name for name in GENERATED)
