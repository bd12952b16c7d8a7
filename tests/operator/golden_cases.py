"""The corpora whose manifests are golden files: a reader sees in them what each field of a spec does."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from groundplane_operator.render.cleanup_job import render_cleanup_job
from groundplane_operator.render.config_map import render_config_map
from groundplane_operator.render.deployment import PodRevision, render_deployment
from groundplane_operator.render.network_policy import render_network_policy
from groundplane_operator.render.pod import pod_inputs, render_pod_template
from groundplane_operator.render.service import render_service
from groundplane_operator.render.service_account import render_service_account
from groundplane_operator.render.volume_claim import render_volume_claim
from groundplane_operator.settings import OperatorSettings
from groundplane_operator.witness import Witness, Witnessed
from tests.operator.parts import BUCKET, IN_BUCKET, KEYS, ON_VOLUME, OTHER_UID, SETTINGS, corpus_of


class _Plain(yaml.SafeDumper):
    """Writes what stands in two places twice, as a reader wants it."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True, always."""
        return True


GOLDEN = Path(__file__).parent / "golden"
PEERED = msgspec.structs.replace(
    SETTINGS,
    shard_image_pull_secrets="registry",
    default_object_store="s3://shared/all?endpoint=https://s3.eu-west-1.amazonaws.com&region=eu-west-1",
    default_credentials_secret="shared-keys",
    metrics_peers='[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]',
    dns_peers='[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]',
    object_store_peers='[{"ipBlock": {"cidr": "10.20.0.0/16"}}]',
)
TUNED = {
    "tenant": "Ünïcode / tenant:1",
    "objectStore": {**BUCKET, "endpoint": "https://s3.eu-west-1.amazonaws.com"},
    "cache": {"sizeLimit": "8Gi", "medium": "Memory"},
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "snapshots": {"every": "1h30m", "keep": 5},
    "podTemplate": {
        "labels": {"team": "search"},
        "annotations": {"example.com/note": "x"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "env": [
            {"name": "GROUNDPLANE_EXACT_MIB", "value": "96"},
            {"name": "GROUNDPLANE_LANGUAGE", "value": "german"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
    },
}
CASES: dict[str, tuple[dict[str, Any], OperatorSettings]] = {
    "bucket": (IN_BUCKET, SETTINGS),
    "volume": (ON_VOLUME, SETTINGS),
    "volume-deleted-with-the-resource": ({**ON_VOLUME, "deletionPolicy": "Delete"}, SETTINGS),
    "suspended": ({**IN_BUCKET, "suspended": True}, SETTINGS),
    "restored": ({**IN_BUCKET, "restoreFrom": {"incarnation": OTHER_UID, "sequence": 7}}, SETTINGS),
    "tuned": (TUNED, SETTINGS),
    "default-bucket-and-peers": ({"tenant": "acme"}, PEERED),
    "deleted": ({**IN_BUCKET, "deletionPolicy": "Delete"}, SETTINGS),
    "no-policies": (IN_BUCKET, msgspec.structs.replace(SETTINGS, network_policies=False)),
}
ONLY = {"deleted": ("Job",)}
"""Of these only the named kinds are kept: the others are those of another case."""


def rendered(case: str) -> list[dict[str, Any]]:
    """Return the manifests of a case, in the order in which they are applied."""
    spec, settings = CASES[case]
    corpus = corpus_of(spec, settings)
    inputs = pod_inputs(corpus)
    template = render_pod_template(inputs)
    made = [
        render_service_account(corpus),
        render_config_map(corpus, KEYS, Witnessed(Witness(2, 40), "2026-09-21T13:33:20Z")),
        render_service(corpus),
        render_network_policy(corpus),
        render_volume_claim(corpus),
        render_deployment(corpus, PodRevision(template=template, inputs=inputs.digest)),
    ]
    if case in ONLY:
        made.append(render_cleanup_job(corpus))
    return [each for each in made if each is not None and (case not in ONLY or each["kind"] in ONLY[case])]


def golden_text(case: str) -> str:
    """Return the golden file of a case; the template's copy in an annotation is left out, since it says nothing new."""
    shown = [_without_copy(manifest) for manifest in rendered(case)]
    return yaml.dump_all(shown, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


def _without_copy(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    kept = {name: value for name, value in metadata.get("annotations", {}).items() if not name.endswith("/template")}
    return {**manifest, "metadata": {**metadata, **({"annotations": kept} if kept else {})}}
