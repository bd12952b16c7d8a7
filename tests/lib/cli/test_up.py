"""`groundplane up` chooses an embedder that works out of the box, and never against what was said."""

import pytest

from groundplane.cli.main import run
from groundplane.cli.up import embedder_settings


@pytest.mark.parametrize(
    ("chosen", "environment", "expected"),
    [
        pytest.param(None, {}, {"GROUNDPLANE_EMBEDDER": "embedded"}, id="embedded-when-nothing-is-said"),
        pytest.param(None, {"EMBEDDING_URL": "http://e"}, {}, id="the-server-of-the-environment"),
        pytest.param(None, {"GROUNDPLANE_EMBEDDER": "none"}, {}, id="none-in-the-environment"),
        pytest.param("none", {"EMBEDDING_URL": "http://e"}, {"GROUNDPLANE_EMBEDDER": "none"}, id="the-option-wins"),
    ],
)
def test_the_embedder_is_the_one_that_was_said(chosen, environment, expected):
    """Embedding documents with another model than the one that was meant cannot be undone cheaply."""
    assert embedder_settings(chosen, environment) == expected


def test_a_broken_manifest_ends_up_before_anything_is_made(tmp_path, capsys):
    """No data directory with half an installation is left behind."""
    (tmp_path / "acme.yaml").write_text("apiVersion: groundplane.dev/v1alpha1\nkind: TenantCorpus\nspec: {}\n")

    assert run(["up", "-f", str(tmp_path / "acme.yaml"), "--data", str(tmp_path / "data")]) == 1
    assert "acme.yaml:1: metadata: is missing: set it" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
