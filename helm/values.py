"""The values of the chart, declared once: values.yaml, values.schema.json and the table of the README are made from here.

A field says when to change it. A value that becomes an environment variable of the operator or the router is checked by that
program too, with the variable's name; `tests/helm` holds the two lists together.
"""

from typing import Annotated, Any, Literal

import msgspec

from groundplane.api.formats import DNS_LABEL, DNS_SUBDOMAIN

Namespace = Annotated[str, msgspec.Meta(pattern=DNS_LABEL, max_length=63)]
ObjectName = Annotated[str, msgspec.Meta(pattern=DNS_SUBDOMAIN, max_length=253)]
Open = dict[str, Any]
"""A part of a Kubernetes object, handed on as it is; the API server checks it."""

_NAME_OR_NOTHING = DNS_SUBDOMAIN.replace("^", "^(").replace("$", ")?$")


def value(help_text: str, **constraints: Any) -> msgspec.Meta:
    """Return the annotation of a value; `constraints` are those of `msgspec.Meta` (`ge`, `pattern`, …)."""
    return msgspec.Meta(description=help_text, **constraints)


def _resources(*, cpu: str, memory: str, memory_limit: str) -> Open:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory_limit}}


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping in which a misspelt name is refused."""


class Global(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a chart of charts says to all of its parts; names that we do not know are others'."""

    image_registry: Annotated[str, value("registry of all images; goes before image.registry")] = ""


class Image(_Part, frozen=True, kw_only=True):
    """The one image of operator, router and shards."""

    registry: Annotated[str, value("registry, without a slash at its end")] = ""
    repository: Annotated[str, value("repository in that registry", min_length=1)] = "groundplane"
    tag: Annotated[str, value("tag; empty: the chart's appVersion")] = ""
    digest: Annotated[str, value("digest (sha256:...); goes before the tag", pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"], value("pull policy, of shards too")] = (
        "IfNotPresent"
    )
    pull_secrets: Annotated[
        list[ObjectName], value("names of Secrets for pulling; shards need them in each corpus's namespace")
    ] = []


class Crds(_Part, frozen=True, kw_only=True):
    """The definition of TenantCorpora."""

    enabled: Annotated[bool, value("install it; switch off where another release of the cluster has it")] = True
    keep: Annotated[bool, value("leave it in the cluster at an uninstall, and with it every TenantCorpus")] = True


class Watch(_Part, frozen=True, kw_only=True):
    """Where TenantCorpora are served."""

    scope: Annotated[
        Literal["cluster", "namespaces"],
        value("cluster: all namespaces, with ClusterRoles; namespaces: those below, with Roles alone"),
    ] = "cluster"
    namespaces: Annotated[
        list[Namespace], value("scope namespaces: served besides the release's own; they have to exist")
    ] = []
    any_subject_namespace: Annotated[
        bool, value("whether a TenantCorpus may name ServiceAccounts of other namespaces; the release's own always may")
    ] = False


class Rbac(_Part, frozen=True, kw_only=True):
    """Rights."""

    create: Annotated[bool, value("make roles and bindings; switch off to grant the same by other means")] = True
    aggregate_cluster_roles: Annotated[
        bool, value("scope cluster: let everyone with view read TenantCorpora, and with edit change them")
    ] = True
    secret_names: Annotated[
        list[ObjectName],
        value(
            "names that credentials of buckets have; named, the operator can read no other Secret of a corpus's namespace"
        ),
    ] = []


class ObjectStore(_Part, frozen=True, kw_only=True):
    """The bucket of corpora that name no place of their own; while there are some, another one would hide their data."""

    url: Annotated[str, value("s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION]", pattern=r"^(s3://[^\s@]+)?$")] = ""
    credentials_secret: Annotated[
        str,
        value(
            "Secret with access-key and secret-key, in each corpus's namespace",
            pattern=_NAME_OR_NOTHING,
            max_length=253,
        ),
    ] = ""


class SecretKey(_Part, frozen=True, kw_only=True):
    """A key of a Secret of the release's namespace."""

    name: Annotated[str, value("Secret with the server's bearer key", pattern=_NAME_OR_NOTHING, max_length=253)] = ""
    key: Annotated[str, value("key in that Secret", min_length=1)] = "api-key"


class Embedder(_Part, frozen=True, kw_only=True):
    """What makes vectors of texts. Another model than before: docs/reindex.md says what to do."""

    kind: Annotated[
        Literal["none", "embedded", "openai"],
        value("embedded: a small model in the router, offline; openai: a server that speaks /v1/embeddings; none"),
    ] = "embedded"
    url: Annotated[
        str, value("kind openai: base of the server; with a password in it: EMBEDDING_URL in router.extraEnv")
    ] = ""
    model: Annotated[str, value("kind openai: model name, where the server has several")] = ""
    dimension: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=8192)] | None,
        value("length of the vectors; empty: 768, or 384 for the embedded model"),
    ] = None
    format: Annotated[
        Literal["", "e5", "bge", "nomic", "qwen3", "gemma", "plain", "minilm", "custom"],
        value("the instructions that the model was trained with; custom: templates in router.extraEnv"),
    ] = ""
    api_key_secret: SecretKey = SecretKey()


class Grep(_Part, frozen=True, kw_only=True):
    """Files that the keyword tier searches. Every caller can find them: never tenants' data."""

    volume: Annotated[
        Open, value("source of a volume, such as {configMap: {name: handbook}}; empty: no such tier", max_length=1)
    ] = {}
    directory: Annotated[str, value("directory in that volume; empty: all of it", pattern=r"^([^/\s][^\s]*)?$")] = ""


class ApiServerPeers(_Part, frozen=True, kw_only=True):
    """The API server, which NetworkPolicies cannot name."""

    peers: Annotated[list[Open], value("NetworkPolicyPeers; empty: any address")] = []
    ports: Annotated[
        list[Annotated[int, msgspec.Meta(ge=1, le=65535)]],
        value("its Service's port and the one it listens on", min_length=1),
    ] = msgspec.field(default_factory=lambda: [443, 6443])


class NetworkPolicies(_Part, frozen=True, kw_only=True):
    """Who may talk to whom; everything else is denied. Peers are NetworkPolicyPeers."""

    enabled: Annotated[
        bool, value("make policies for router and operator, and let the operator make those of shards")
    ] = True
    callers: Annotated[
        list[Open],
        value("who may call the router; default: every pod of the cluster, with a token"),
    ] = msgspec.field(default_factory=lambda: [{"namespaceSelector": {}}])
    metrics: Annotated[
        list[Open], value("who reads metrics of router, operator and shards; empty: nobody, callers apart")
    ] = []
    dns: Annotated[list[Open], value("name servers, on port 53; empty: any address")] = []
    api_server: ApiServerPeers = ApiServerPeers()
    object_store: Annotated[
        list[Open], value("buckets' servers, on any port; empty: any address, on the URL's port")
    ] = []
    embedder: Annotated[
        list[Open], value("embedder.url's server, on any port; empty: any address, on the URL's port")
    ] = []


class Metrics(_Part, frozen=True, kw_only=True):
    """Prometheus."""

    scrape_annotations: Annotated[
        bool, value("prometheus.io/scrape, port and path on the pods of router and operator")
    ] = False


class Workload(_Part, frozen=True, kw_only=True):
    """What both Deployments have."""

    resources: Annotated[Open, value("requests and limits of the container")] = {}
    extra_env: Annotated[
        list[Open],
        value("more settings, as in a container's env; one of the same name goes before ours (docs/reference.md)"),
    ] = []
    pod_labels: Annotated[dict[str, str], value("more labels of the pods")] = {}
    pod_annotations: Annotated[dict[str, str], value("more annotations of the pods")] = {}
    node_selector: Annotated[dict[str, str], value("labels of the nodes to run on")] = {}
    tolerations: Annotated[list[Open], value("taints to tolerate")] = []
    affinity: Annotated[Open, value("affinity of the pods")] = {}
    priority_class_name: Annotated[str, value("PriorityClass of the pods")] = ""
    service_account_annotations: Annotated[dict[str, str], value("annotations of the ServiceAccount")] = {}
    extra_volumes: Annotated[list[Open], value("more volumes, such as CAs")] = []
    extra_volume_mounts: Annotated[list[Open], value("where the container finds them")] = []


class Operator(Workload, frozen=True, kw_only=True):
    """Makes shards of TenantCorpora: one pod."""

    resources: Annotated[Open, value("requests and limits of the container")] = msgspec.field(
        default_factory=lambda: _resources(cpu="50m", memory="160Mi", memory_limit="512Mi")
    )
    max_concurrent_rollouts: Annotated[int, value("corpora whose pods are replaced at the same time", ge=1)] = 3
    rollout_seconds: Annotated[
        int,
        value(
            "seconds after which a new shard that is not ready has failed; more for corpora that restore for long",
            ge=30,
        ),
    ] = 900
    cleanup_seconds: Annotated[
        int, value("seconds that a deletion with policy Delete may take before the resource is let go", ge=30)
    ] = 900
    poll_seconds: Annotated[float, value("seconds between two looks at a corpus that is as it should be", ge=1)] = 30
    rotate_keys_days: Annotated[float, value("days after which the signing keys are replaced", gt=0)] = 90


class DisruptionBudget(_Part, frozen=True, kw_only=True):
    """What a drained node may take at once; made where there is more than one router."""

    enabled: Annotated[bool, value("make a PodDisruptionBudget")] = True
    max_unavailable: Annotated[int, value("routers that may be gone at the same time", ge=1)] = 1


class Router(Workload, frozen=True, kw_only=True):
    """Answers agents. It keeps nothing: any number of pods."""

    replicas: Annotated[int, value("pods", ge=1)] = 2
    resources: Annotated[Open, value("requests and limits of the container")] = msgspec.field(
        default_factory=lambda: _resources(cpu="250m", memory="448Mi", memory_limit="1Gi")
    )
    require_semantic: Annotated[
        bool, value("not ready until an embedding has worked once; else after 30 s, answering by keywords meanwhile")
    ] = False
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    topology_spread_constraints: Annotated[
        list[Open], value("how pods are spread; empty: over nodes, where that is possible")
    ] = []
    service_annotations: Annotated[dict[str, str], value("annotations of the Service groundplane-router")] = {}


class Test(_Part, frozen=True, kw_only=True):
    """What `helm test` does: index a document and ask for it, with a token of its own ServiceAccount."""

    enabled: Annotated[bool, value("have such a test")] = True
    service_account: Annotated[
        str,
        value(
            "ServiceAccount of the release's namespace that may write to a corpus; empty: the test makes one, with a corpus",
            pattern=_NAME_OR_NOTHING,
            max_length=253,
        ),
    ] = ""
    corpus: Annotated[
        Open,
        value(
            "place of the corpus that the test makes, as in a TenantCorpus's spec; empty: objectStore, else a volume of 1Gi"
        ),
    ] = {}


class Values(_Part, frozen=True, kw_only=True):
    """All values."""

    global_: Annotated[Global, value("what a chart of charts says to all of its parts")] = msgspec.field(
        name="global", default=Global()
    )
    enabled: Annotated[bool, value("read by nothing here: a chart of charts may switch us on and off by it")] = True
    image: Image = Image()
    crds: Crds = Crds()
    watch: Watch = Watch()
    rbac: Rbac = Rbac()
    object_store: ObjectStore = ObjectStore()
    embedder: Embedder = Embedder()
    grep: Grep = Grep()
    language: Annotated[
        str,
        value("Snowball language of the analyser, of router and shards; fixed with the first document", min_length=1),
    ] = "english"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], value("least severe level that is logged")] = (
        "info"
    )
    network_policy: NetworkPolicies = NetworkPolicies()
    metrics: Metrics = Metrics()
    operator: Operator = Operator()
    router: Router = Router()
    test: Test = Test()
    common_labels: Annotated[dict[str, str], value("labels of every object of the chart")] = {}
    extra_objects: Annotated[list[Open | str], value("more objects, as YAML or as text that is a template")] = []
