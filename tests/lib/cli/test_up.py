"""`groundplane up` chooses an embedder that works out of the box, and never against what was said."""

import click
import pytest

from groundplane.cli.main import run
from groundplane.cli.up import embedder_settings, parse_losses
from groundplane.manifests import load_manifests
from tests.support.command_line import EXAMPLES


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


@pytest.fixture
def corpora():
    return [found.corpus for found in load_manifests([EXAMPLES]).corpora]


def test_a_loss_is_accepted_for_the_corpus_it_names_alone(corpora):
    """One tenant's loss says nothing about another's log."""
    assert parse_losses(["acme=80", "platform=0"], corpora) == {"t-acme": 80, "platform": 0}


@pytest.mark.parametrize("loss", ["acme", "acme=", "acme=-1", "acme=x", "acme=\u0663", "=80", "nobody=80", "t-acme=80"])
def test_a_loss_that_is_not_understood_stops_the_start(corpora, loss):
    """Nothing is lost by a slip of the pen."""
    with pytest.raises(click.UsageError, match="expected TENANT=SEQUENCE once for a tenant, of acme, globex, platform"):
        parse_losses([loss], corpora)


def test_two_losses_of_one_corpus_contradict_each_other(corpora):
    """The second would silently win."""
    with pytest.raises(click.UsageError):
        parse_losses(["acme=80", "acme=81"], corpora)
