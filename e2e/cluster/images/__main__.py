"""`python -m e2e.cluster.images [NAME...]`: build the named images, or all, and print each one's reference and archive."""

import os
import sys

from e2e.cluster.images.base import base_image
from e2e.cluster.images.pause import pause_image
from e2e.cluster.images.product import product_image
from e2e.cluster.steps import StepFailed
from e2e.cluster.toolchain import cache_directory

IMAGES = {"pause": pause_image, "groundplane-base": base_image, "groundplane": product_image}


def main(names: list[str]) -> None:
    """Build and print. Exits with the reason if an image cannot be built, and with the known names for another."""
    unknown = sorted(set(names) - set(IMAGES))
    if unknown:
        sys.exit(f"groundplane: no image {', '.join(unknown)}: expected some of {', '.join(IMAGES)}")
    try:
        for name in names or IMAGES:
            archive = IMAGES[name](cache_directory(os.environ))
            print(archive.reference, archive.path)
    except StepFailed as failure:
        sys.exit(f"groundplane: {failure}")


if __name__ == "__main__":
    main(sys.argv[1:])
