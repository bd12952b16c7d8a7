"""Settings of the operator, read once from its environment."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane_operator.names import NAMESPACE_LABEL
from groundplane_operator.store_location import Bucket, default_bucket

Peer = dict[str, Any]
"""A NetworkPolicyPeer, handed on as it is."""

_PEERS_HELP = "JSON list of NetworkPolicyPeers"
_STORE = "GROUNDPLANE_DEFAULT_OBJECT_STORE"
_SECRET = "GROUNDPLANE_DEFAULT_CREDENTIALS_SECRET"  # noqa: S105 - the name of a variable


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Return the peers of a JSON list, none of "". Raises InvalidInput."""
    try:
        return msgspec.json.decode(text, type=tuple[Peer, ...]) if text else ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{text[:128]} is no {_PEERS_HELP}: expected a list of mappings") from error


def _check_store(url: str) -> None:
    default_bucket(url, "")


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the operator works, what it starts, and whom its network policies let through."""

    namespace: Annotated[
        str,
        setting("GROUNDPLANE_NAMESPACE", "namespace of the operator, where the platform corpus lives", min_length=1),
    ]
    shard_image: Annotated[str, setting("GROUNDPLANE_SHARD_IMAGE", "image of shards and clean-up Jobs", min_length=1)]
    shard_image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"],
        setting("GROUNDPLANE_SHARD_IMAGE_PULL_POLICY", "pull policy of that image"),
    ] = "IfNotPresent"
    shard_image_pull_secrets: Annotated[
        str,
        setting(
            "GROUNDPLANE_SHARD_IMAGE_PULL_SECRETS",
            "names of Secrets for pulling it, separated by commas; they have to exist in each corpus's namespace",
        ),
    ] = ""
    shard_language: Annotated[
        str, setting("GROUNDPLANE_LANGUAGE", "Snowball language of the analyser, the same in router and shards")
    ] = "english"
    watch_namespaces: Annotated[
        str,
        setting(
            "GROUNDPLANE_WATCH_NAMESPACES", "namespaces whose resources are served, separated by commas; unset: all"
        ),
    ] = ""
    any_subject_namespace: Annotated[
        bool,
        setting(
            "GROUNDPLANE_ANY_SUBJECT_NAMESPACE",
            "whether a resource may name ServiceAccounts of other namespaces; those in the operator's own always may",
        ),
    ] = False
    default_object_store: Annotated[
        str,
        setting(
            _STORE,
            "bucket of corpora whose spec names no place: s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION]",
            check=_check_store,
        ),
    ] = ""
    default_credentials_secret: Annotated[
        str,
        setting(
            _SECRET,
            "Secret with access-key and secret-key of that bucket; it has to exist in each corpus's namespace",
        ),
    ] = ""
    max_concurrent_rollouts: Annotated[
        int,
        setting("GROUNDPLANE_MAX_CONCURRENT_ROLLOUTS", "corpora whose pods are replaced at the same time", ge=1),
    ] = 3
    rollout_seconds: Annotated[
        int,
        setting(
            "GROUNDPLANE_ROLLOUT_SECONDS",
            "seconds after which a new pod that is not ready has failed; raise it for corpora that restore for long",
            ge=30,
        ),
    ] = 900
    cleanup_seconds: Annotated[
        int,
        setting(
            "GROUNDPLANE_CLEANUP_SECONDS",
            "seconds that a deletion with policy Delete may take before the resource is released with objects left",
            ge=30,
        ),
    ] = 900
    poll_seconds: Annotated[
        float,
        setting("GROUNDPLANE_POLL_SECONDS", "seconds between two looks at a corpus that is as it should be", ge=1),
    ] = 30.0
    network_policies: Annotated[
        bool, setting("GROUNDPLANE_NETWORK_POLICIES", "whether each corpus gets a policy that denies all but the peers")
    ] = True
    router_peers: Annotated[
        str,
        setting(
            "GROUNDPLANE_ROUTER_PEERS",
            f"{_PEERS_HELP}: routers; unset: those of the operator's namespace",
            check=parse_peers,
        ),
    ] = ""
    operator_peers: Annotated[
        str,
        setting(
            "GROUNDPLANE_OPERATOR_PEERS",
            f"{_PEERS_HELP}: the operator; unset: that of its namespace",
            check=parse_peers,
        ),
    ] = ""
    metrics_peers: Annotated[
        str,
        setting(
            "GROUNDPLANE_METRICS_PEERS", f"{_PEERS_HELP}: who reads metrics of shards; unset: nobody", check=parse_peers
        ),
    ] = ""
    dns_peers: Annotated[
        str,
        setting(
            "GROUNDPLANE_DNS_PEERS", f"{_PEERS_HELP}: name servers, on port 53; unset: any address", check=parse_peers
        ),
    ] = ""
    object_store_peers: Annotated[
        str,
        setting(
            "GROUNDPLANE_OBJECT_STORE_PEERS",
            f"{_PEERS_HELP}: object stores, on any port; unset: any on the URL's port",
            check=parse_peers,
        ),
    ] = ""
    kubeconfig: Annotated[
        str, setting("GROUNDPLANE_KUBECONFIG", "kubeconfig of the API server; unset: that of the pod's service account")
    ] = ""
    rotate_keys_days: Annotated[
        float, setting("GROUNDPLANE_ROTATE_KEYS_DAYS", "days after which the signing keys are replaced", gt=0)
    ] = 90.0
    workers: Annotated[int, setting("GROUNDPLANE_WORKERS", "resources that are worked on at the same time", ge=1)] = 8
    resync_seconds: Annotated[
        float,
        setting(
            "GROUNDPLANE_RESYNC_SECONDS", "seconds after which everything is listed again, whatever was watched", ge=10
        ),
    ] = 600.0
    host: Annotated[str, setting("GROUNDPLANE_HOST", "address of probes and metrics")] = "0.0.0.0"  # noqa: S104 - in a pod
    port: Annotated[int, setting("GROUNDPLANE_PORT", "TCP port of probes and metrics", ge=1, le=65_535)] = 8080
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("GROUNDPLANE_LOG_LEVEL", "least severe level that is logged"),
    ] = "info"

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """Return the names of `shard_image_pull_secrets`."""
        return _names(self.shard_image_pull_secrets)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that are watched; none means all."""
        return _names(self.watch_namespaces)

    @property
    def default_store(self) -> Bucket | None:
        """Return the bucket of corpora that name no place. Raises InvalidInput."""
        return default_bucket(self.default_object_store, self.default_credentials_secret)

    @property
    def peers(self) -> "Peers":
        """Return whom the network policies let through. Raises InvalidInput."""
        return Peers(
            router=parse_peers(self.router_peers) or (_own(self.namespace, "router"),),
            operator=parse_peers(self.operator_peers) or (_own(self.namespace, "operator"),),
            metrics=parse_peers(self.metrics_peers),
            dns=parse_peers(self.dns_peers),
            object_store=parse_peers(self.object_store_peers),
        )


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a shard may hear and call; for the last two nobody named means any address."""

    router: tuple[Peer, ...]
    operator: tuple[Peer, ...]
    metrics: tuple[Peer, ...]
    dns: tuple[Peer, ...]
    object_store: tuple[Peer, ...]


def read_operator_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Return the settings of `environment`. Raises InvalidInput that lists every fault, one a line."""
    faults: list[str] = []
    has_store, has_secret = (environment.get(name, "") != "" for name in (_STORE, _SECRET))
    if has_store != has_secret:
        faults.append(f"{_STORE} and {_SECRET}: one of them is set: expected both, the bucket and its keys, or neither")
    try:
        settings = read_settings(OperatorSettings, environment)
    except InvalidInput as error:
        raise InvalidInput("\n".join([error.message, *faults]), code=error.code) from error
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_settings")
    return settings


def _own(namespace: str, component: str) -> Peer:
    labels = {"app.kubernetes.io/name": "groundplane", "app.kubernetes.io/component": component}
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}},
        "podSelector": {"matchLabels": labels},
    }


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
