"""What leaves a process is declared once; the page about it must say the same."""

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_says_what_the_code_says():
    """A setting or metric that the docs do not know, or no longer exists, is found here and not by a user."""
    generated = runpy.run_path(str(DOCS / "generate.py"))["render"]()

    assert (DOCS / "reference.md").read_text() == generated
