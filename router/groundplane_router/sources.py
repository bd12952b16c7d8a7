"""Where the router learns which corpora exist and who is calling: files on one machine, the API server in a cluster."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.clock import Clock
from groundplane.tokens import load_public_key
from groundplane_router.directory import DirectoryFile, DirectoryState, LiveDirectory
from groundplane_router.identity import LocalVerifier
from groundplane_router.kubernetes.access import ApiAccess
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.directory import ALL_NAMESPACES, KubernetesDirectory
from groundplane_router.kubernetes.jwks import JwksVerifier
from groundplane_router.kubernetes.token_review import TokenReviewVerifier
from groundplane_router.settings import RouterSettings, parse_namespaces
from groundplane_router.token_checks import Verifier

ValueT = TypeVar("ValueT")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings chose. `api` is None where no API server is asked."""

    directory: LiveDirectory
    verifier: Verifier
    api: ApiServer | None


def build_sources(
    settings: RouterSettings, clock: Clock, rng: random.Random, on_change: Callable[[DirectoryState], None]
) -> Sources:
    """Return the sources; `on_change` is called with each new directory. Raises InvalidInput for what cannot be used."""
    api = _api_server(settings, clock)
    return Sources(
        directory=_directory(settings, api, clock, rng, on_change), verifier=_verifier(settings, api, clock), api=api
    )


def _api_server(settings: RouterSettings, clock: Clock) -> ApiServer | None:
    if settings.kubernetes_host is None or (settings.directory_kind, settings.identity_kind) == ("file", "local"):
        return None
    access = ApiAccess(
        host=settings.kubernetes_host,
        port=settings.kubernetes_port,
        directory=Path(settings.service_account_directory),
    )
    return ApiServer(access, clock)


def _directory(
    settings: RouterSettings,
    api: ApiServer | None,
    clock: Clock,
    rng: random.Random,
    on_change: Callable[[DirectoryState], None],
) -> LiveDirectory:
    if settings.directory_kind == "kubernetes":
        namespaces = parse_namespaces(settings.namespaces) or ALL_NAMESPACES
        return KubernetesDirectory(_needed(api), namespaces, clock=clock, rng=rng, on_change=on_change)
    directory = DirectoryFile(Path(_needed(settings.directory_file)), clock, on_change=on_change)
    directory.refresh()
    return directory


def _verifier(settings: RouterSettings, api: ApiServer | None, clock: Clock) -> Verifier:
    match settings.identity_kind:
        case "local":
            return LocalVerifier(load_public_key(Path(_needed(settings.caller_key_file))), clock)
        case "tokenreview":
            return TokenReviewVerifier(_needed(api))
        case "jwks":
            return JwksVerifier(_needed(api), clock)


def _needed(value: ValueT | None) -> ValueT:
    """Return `value`. Raises InvalidInput for settings that `read_router_settings` would have refused."""
    if value is None:
        raise InvalidInput("a setting that the kind of directory or identity needs is missing", code="invalid_settings")
    return value
