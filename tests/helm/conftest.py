"""The manifests of all cases, rendered once."""

import pytest

from tests.helm.cases import CASES


@pytest.fixture(scope="session")
def cases(chart):
    """Give the manifests of each case."""
    return {case: chart.manifests(values) for case, values in CASES.items()}
