"""Looks into rendered manifests."""

from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """Return the manifests of these kinds."""
    return [each for each in manifests if each["kind"] in kinds]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """Return the one manifest of a kind and name."""
    (found,) = (each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name)
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield the name and the spec of every pod."""
    for each in manifests:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif each["kind"] == "Deployment":
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def rules(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield the name of the role and each of its rules."""
    for each in of_kind(manifests, "Role", "ClusterRole"):
        for rule in each["rules"]:
            yield each["metadata"]["name"], rule


def variables(manifests: list[Manifest], component: str) -> dict[str, str]:
    """Return the environment of the operator or the router."""
    pod = named(manifests, "Deployment", f"groundplane-{component}")["spec"]["template"]["spec"]
    return {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
