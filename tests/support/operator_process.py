"""A real operator process before a real API server."""

import threading
from pathlib import Path

from tests.support.processes import ProgramProcess

IMAGE = "groundplane:test"
SECRET = "corpora"


class OperatorProcess(ProgramProcess):
    """Operates one namespace; its resync is short, so that what a lost event costs shows within a test."""

    module = "groundplane_operator.main"

    def __init__(self, kubeconfig: Path, namespace: str, log_path: Path, **settings: str) -> None:
        super().__init__(log_path)
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._settings = settings
        self._lock = threading.Lock()
        self.life = 0

    def start(self) -> None:
        """Start the next life of the operator."""
        self.life += 1
        super().start()

    def die(self, life: int) -> None:
        """End the process if it still lives this life; from any thread."""
        with self._lock:
            if life == self.life and self.is_running:
                self.kill()

    def settings(self) -> dict[str, str]:
        """Return the operator's variables."""
        return {
            "GROUNDPLANE_NAMESPACE": self._namespace,
            "GROUNDPLANE_WATCH_NAMESPACES": self._namespace,
            "GROUNDPLANE_ANY_SUBJECT_NAMESPACE": "true",
            "GROUNDPLANE_SHARD_IMAGE": IMAGE,
            "GROUNDPLANE_KUBECONFIG": str(self._kubeconfig),
            "GROUNDPLANE_DEFAULT_OBJECT_STORE": "s3://corpora/prod?endpoint=http://s3.storage.svc:8333",
            "GROUNDPLANE_DEFAULT_CREDENTIALS_SECRET": SECRET,
            "GROUNDPLANE_RESYNC_SECONDS": "10",
            "GROUNDPLANE_HOST": "127.0.0.1",
            "GROUNDPLANE_PORT": str(self.port),
            **self._settings,
        }
