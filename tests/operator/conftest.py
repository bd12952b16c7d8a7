"""Options of these tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `pytest tests/operator/test_render.py --write-golden` rewrite the golden manifests."""
    parser.addoption("--write-golden", action="store_true", help="rewrite tests/operator/golden from the code")
