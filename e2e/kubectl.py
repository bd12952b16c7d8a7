"""kubectl for tests: manifests in, objects out, and waits that say what they waited for and what was there instead."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from e2e.cluster.api import Manifest
from e2e.cluster.steps import Command, StepFailed, run

POD_SECONDS = 120.0  # pods of the tests start in 3; a machine that builds beside them takes 20
EXPLAINED_EVENTS = 8
FORWARDED = re.compile(r"Forwarding from (127\.0\.0\.1:\d+)")


class Kubectl(msgspec.Struct, frozen=True):
    """kubectl in one namespace of the cluster that KUBECONFIG names. Every method raises StepFailed with kubectl's words."""

    namespace: str

    def apply(self, *manifests: Manifest) -> None:
        """Create objects, or change them to what is said here."""
        self._run("apply", "--filename=-", standard_input=_listed(manifests))

    def create(self, manifest: Manifest, *, path: str = "") -> Manifest:
        """Create one object and return what the server answers; `path` names a subresource, such as a pod's eviction."""
        target = (f"--raw={path}",) if path else ("--output=json",)
        answer = self._run("create", *target, "--filename=-", standard_input=json.dumps(manifest).encode())
        return _object(answer)

    def get(self, resource: str) -> Manifest:
        """Return one object, such as `pod/web-0`."""
        return _object(self._run("get", resource, "--output=json"))

    def list(self, kind: str, *, selector: str) -> "list[Manifest]":
        """Return the objects of a kind with these labels, in the order of their names."""
        items: list[Manifest] = _object(self._run("get", kind, f"--selector={selector}", "--output=json"))["items"]
        return items

    def delete(self, resource: str) -> None:
        """Delete one object and return when it is gone."""
        self._run("delete", resource, "--wait", f"--timeout={POD_SECONDS:.0f}s", limit_seconds=POD_SECONDS + 10)

    def execute(self, pod: str, *command: str) -> str:
        """Return what a command in a pod prints; one that fails raises."""
        return self._run("exec", pod, "--", *command)

    def python(self, pod: str, program: str, *arguments: str) -> str:
        """Return what a Python program in a pod of our image prints."""
        return self.execute(pod, "python", "-c", program, *arguments)

    def await_rollout(self, resource: str) -> None:
        """Return when all pods of a Deployment or StatefulSet are as its template says, and ready."""
        self._await("rollout", "status", resource, what=f"{resource} has all its pods ready")

    def await_state(self, resource: str, state: str) -> None:
        """Return when an object has a state: `condition=Ready`, or `jsonpath={.status.field}=value`."""
        self._await("wait", f"--for={state}", resource, what=f"{resource} has {state}")

    @contextmanager
    def forwarded(self, resource: str, port: int) -> Iterator[str]:
        """Give the URL under which this process reaches a port of a pod, whatever network the cluster is in."""
        arguments = ("kubectl", f"--namespace={self.namespace}", "port-forward", resource, f":{port}")
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert process.stdout is not None  # it was asked for
            first_line = process.stdout.readline()  # ends with the process at the latest
            found = FORWARDED.match(first_line)
            if found is None:
                raise StepFailed(
                    f"port {port} of {resource} in {self.namespace} is not forwarded: {first_line.strip()}"
                )
            yield f"http://{found[1]}"
        finally:
            process.kill()
            process.communicate()

    def _await(self, *arguments: str, what: str) -> None:
        try:
            self._run(*arguments, f"--timeout={POD_SECONDS:.0f}s", limit_seconds=POD_SECONDS + 10)
        except StepFailed as error:
            raise StepFailed(f"waited {POD_SECONDS:.0f} s in vain until {what}: {error}\n{self._explain()}") from error

    def _explain(self) -> str:
        """Return the pods of the namespace, its last events, and the last lines that each pod wrote."""
        pods = self._run("get", "pods", "--output=wide")
        events = self._run("get", "events", "--sort-by=.lastTimestamp").splitlines()[-EXPLAINED_EVENTS:]
        names = self._run("get", "pods", "--output=name").split()
        logs = [f"{name}:\n{self._run('logs', name, '--tail=10', '--ignore-errors')}" for name in names]
        return "\n".join((pods, *events, *logs))

    def _run(self, *arguments: str, standard_input: bytes = b"", limit_seconds: float = 60.0) -> str:
        command = ("kubectl", f"--namespace={self.namespace}", *arguments)
        return run(Command(arguments=command, standard_input=standard_input, limit_seconds=limit_seconds))


def _listed(manifests: Sequence[Manifest]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}).encode()


def _object(text: str) -> Manifest:
    found: Manifest = json.loads(text)
    return found
