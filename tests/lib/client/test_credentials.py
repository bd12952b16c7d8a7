"""Address and token are found where they were put, and a renewed token file is noticed."""

from pathlib import Path

import pytest

from groundplane.client import NotAuthorised, TokenFile
from groundplane.client.credentials import from_environment, token_source
from groundplane.errors import InvalidInput


def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    """Kubernetes renews projected tokens in place; a long-lived client must not keep the old one."""
    path = tmp_path / "token"
    path.write_text("first\n")
    source = TokenFile(path)
    assert source() == "first"

    renewed = tmp_path / "renewed"
    renewed.write_text("second\n")
    renewed.rename(path)

    assert source() == "second"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_token_file_without_a_token_is_refused(tmp_path, content):
    """An empty header would come back as a puzzling 401."""
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(NotAuthorised, match="token file"):
        TokenFile(path)()


def test_a_missing_token_file_names_itself(tmp_path):
    """The path is what is wrong, so the path is what is shown."""
    with pytest.raises(NotAuthorised, match="nowhere"):
        TokenFile(tmp_path / "nowhere")()


@pytest.mark.parametrize("token", ["", "  ", "a\nb", "tökên"])
def test_what_cannot_be_a_token_is_refused(token):
    """A line break in a header would be another header."""
    with pytest.raises(InvalidInput):
        token_source(token)


def test_the_environment_gives_address_and_token():
    """The three variables are all that a pod needs."""
    url = {"GROUNDPLANE_URL": "http://router"}

    assert from_environment({**url, "GROUNDPLANE_TOKEN": "t"}) == ("http://router", "t")
    assert from_environment({**url, "GROUNDPLANE_TOKEN_FILE": "/t"}) == ("http://router", Path("/t"))


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        pytest.param({}, "GROUNDPLANE_URL", id="no-address"),
        pytest.param({"GROUNDPLANE_URL": "http://router"}, "GROUNDPLANE_TOKEN_FILE", id="no-token"),
    ],
)
def test_a_missing_variable_is_named(environment, variable):
    """Whoever deploys the caller sees which one to set."""
    with pytest.raises(InvalidInput, match=variable):
        from_environment(environment)
