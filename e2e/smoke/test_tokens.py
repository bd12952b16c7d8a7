"""Tokens of ServiceAccounts, as callers will show them to the router."""

from typing import Any

import pytest

from e2e.kubectl import Kubectl
from e2e.smoke.manifests import AUDIENCE, TOKENS


def review(kubectl: Kubectl, token: str, audience: str) -> dict[str, Any]:
    """Return what the API server says of a token for an audience."""
    spec = {"token": token, "audiences": [audience]}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    status: dict[str, Any] = kubectl.create(asked)["status"]
    return status


@pytest.fixture
def token(kubectl: Kubectl, friend: str) -> str:
    """Give the token that a pod got for us."""
    return kubectl.execute(friend, "cat", f"{TOKENS}/{AUDIENCE}")


def test_a_token_for_us_is_confirmed_with_its_subject(kubectl: Kubectl, token: str) -> None:
    """The tenant of a caller comes from here and nowhere else."""
    status = review(kubectl, token, AUDIENCE)

    assert status["authenticated"] is True
    assert status["audiences"] == [AUDIENCE]
    assert status["user"]["username"] == f"system:serviceaccount:{kubectl.namespace}:default"


def test_a_token_for_us_is_nobodys_elsewhere(kubectl: Kubectl, token: str) -> None:
    """A token that a caller showed to another service must be worth nothing here, and ours nothing there."""
    status = review(kubectl, token, "another-service")

    assert not status.get("authenticated")
