"""What the chart installs is what a reader finds in the golden files."""

import pytest

from tests.helm.cases import CASES, GOLDEN

CRD = "# Source: groundplane/templates/crd.yaml"


def rendered(chart, case):
    """Return the manifests of a case without the CRD, which is generated and compared elsewhere."""
    parts = chart.template(CASES[case]).split("---\n")
    return "---\n".join(part for part in parts if not part.startswith(CRD))


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_the_golden_ones(chart, case, request):
    """A change of what runs in a cluster is seen by whoever reviews it (`--write-golden` rewrites the files)."""
    path, text = GOLDEN / f"{case}.yaml", rendered(chart, case)
    if request.config.getoption("--write-golden"):
        path.write_text(text)

    assert path.read_text() == text


def test_every_golden_file_is_compared():
    """A file without a case would look true for ever."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)
