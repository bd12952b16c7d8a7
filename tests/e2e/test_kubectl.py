"""What tests are told when a cluster does not do what they wait for."""

import json
import os

import pytest

from e2e import kubectl as module
from e2e.cluster.steps import StepFailed
from e2e.kubectl import Kubectl

FAKE = """\
#!/bin/sh
echo "$*" >> {directory}/calls
case "$*" in
  *"rollout status"*) echo "timed out waiting for the condition" >&2; exit 1 ;;
  *"get pods --output=wide"*) echo "web-0 0/1 CrashLoopBackOff" ;;
  *"get pods --output=name"*) echo "pod/web-0" ;;
  *"get events"*) echo "Back-off restarting failed container" ;;
  *logs*) echo "GROUNDPLANE_PORT=abc: expected a port" ;;
  *"apply"*) cat > {directory}/applied ;;
  *"create"*) cat ;;
  *port-forward*" :81"*) echo "Forwarding from 127.0.0.1:40123 -> 81"; exec sleep 60 ;;
  *port-forward*) echo "error: pod not found"; exit 1 ;;
  *"get pod/web-0"*) echo '{{"metadata": {{"name": "web-0"}}}}' ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """Give kubectl in the namespace `tests`, with a program in its place that knows one failing Deployment."""
    program = tmp_path / "kubectl"
    program.write_text(FAKE.format(directory=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return Kubectl("tests")


def test_a_wait_in_vain_says_what_was_there_instead(kubectl):
    """A timeout alone sends a person into a cluster that is gone by then."""
    with pytest.raises(StepFailed) as failure:
        kubectl.await_rollout("deployment/web")

    text = str(failure.value)
    assert text.startswith(f"waited {module.POD_SECONDS:.0f} s in vain until deployment/web has all its pods ready")
    for reason in ("CrashLoopBackOff", "Back-off restarting", "GROUNDPLANE_PORT=abc: expected a port"):
        assert reason in text


def test_everything_happens_in_the_one_namespace(kubectl, tmp_path):
    """Two test runs in one cluster must not see each other's objects."""
    kubectl.get("pod/web-0")
    kubectl.delete("pod/web-0")
    kubectl.execute("web-0", "true")

    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert all(call.startswith("--namespace=tests ") for call in calls)


def test_objects_are_applied_in_one_call(kubectl, tmp_path):
    """A namespace and what is in it arrive in their order."""
    kubectl.apply({"kind": "Namespace"}, {"kind": "ConfigMap"})

    assert [item["kind"] for item in json.loads((tmp_path / "applied").read_text())["items"]] == [
        "Namespace",
        "ConfigMap",
    ]


def test_what_the_server_makes_of_an_object_is_returned(kubectl):
    """A TokenReview is nothing but its answer."""
    assert kubectl.create({"kind": "TokenReview"}) == {"kind": "TokenReview"}


def test_a_forwarded_port_is_one_of_this_machine(kubectl):
    """Tests reach pods in the same way whatever network the cluster is in."""
    with kubectl.forwarded("pod/web-0", 81) as url:
        assert url == "http://127.0.0.1:40123"


def test_a_port_that_is_not_forwarded_is_an_error_with_its_reason(kubectl):
    """An empty address would be reported as a shard that does not answer."""
    told = pytest.raises(StepFailed, match="port 80 of pod/gone in tests is not forwarded: error: pod not found")
    with told, kubectl.forwarded("pod/gone", 80):
        pass
