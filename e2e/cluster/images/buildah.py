"""The few things that buildah does for us, with its layers in a folder of ours and none of its own state used."""

import os
from pathlib import Path

import msgspec

from e2e.cluster.images.archive import ImageArchive
from e2e.cluster.images.contained import contained
from e2e.cluster.node_config import choose_snapshotter
from e2e.cluster.steps import Command, run, succeeds

BUILD_LIMIT_SECONDS = 1500.0
COPY_LIMIT_SECONDS = 300.0
SHORT_LIMIT_SECONDS = 60.0


def storage_driver(mounts: str, storage: Path) -> str:
    """Return how buildah can layer file systems at `storage`: slowly, by copies, where an overlay would lie on an overlay.

    mounts: the text of /proc/mounts.
    """
    return "vfs" if choose_snapshotter(mounts, storage) == "native" else "overlay"


class Buildah(msgspec.Struct, frozen=True, kw_only=True):
    """Builds with one store of layers; one build at a time."""

    storage: Path  # layers and images, kept from build to build
    driver: str  # how it layers file systems
    scratch: Path  # what is true for this run alone, such as which layer is mounted; emptied before

    def ensure(self, image: ImageArchive) -> None:
        """Read an archive into the store unless the store has it. Raises StepFailed."""
        if not succeeds(self._command("inspect", "--type=image", image.reference, limit_seconds=SHORT_LIMIT_SECONDS)):
            run(self._command("pull", "--quiet", f"docker-archive:{image.path}", limit_seconds=COPY_LIMIT_SECONDS))

    def build(
        self, context: Path, *, base: ImageArchive, reference: str, options: list[str], usual_seconds: float
    ) -> None:
        """Build the Dockerfile of `context` on the image `base`, which the store has. Raises StepFailed.

        `--isolation chroot` needs no container runtime, and `--network host` is how a step reaches the package index.
        """
        isolation = ("--isolation=chroot", "--network=host", "--pull-never", "--layers")
        run(
            self._command(
                *(
                    "bud",
                    *isolation,
                    f"--build-arg=BASE_IMAGE={base.reference}",
                    f"--tag={reference}",
                    *options,
                    str(context),
                ),
                what=f"build {reference}",
                usual_seconds=usual_seconds,
                limit_seconds=BUILD_LIMIT_SECONDS,
            )
        )

    def export(self, archive: ImageArchive) -> None:
        """Write an image of the store as a docker-archive. Raises StepFailed."""
        target = f"docker-archive:{archive.path}:{archive.reference}"
        arguments = ("push", "--quiet", archive.reference, target)
        what = f"write {archive.path.name}"
        run(self._command(*arguments, what=what, usual_seconds=5, limit_seconds=COPY_LIMIT_SECONDS))

    def _command(self, *arguments: str, limit_seconds: float, what: str = "", usual_seconds: float = 0.0) -> Command:
        store = (f"--root={self.storage}", f"--runroot={self.scratch / 'run'}", f"--storage-driver={self.driver}")
        temporary = self.scratch / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        return Command(
            arguments=contained("buildah", *store, *arguments),
            what=what,
            usual_seconds=usual_seconds,
            limit_seconds=limit_seconds,
            environment={**os.environ, "TMPDIR": str(temporary)},  # what a killed build leaves there goes with the rest
        )
