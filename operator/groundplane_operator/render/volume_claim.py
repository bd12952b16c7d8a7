"""The volume of a corpus that has no bucket."""

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, manifest, seal, with_annotations
from groundplane_operator.store_location import Volume


def render_volume_claim(corpus: Corpus) -> Manifest | None:
    """Return the claim, None for a corpus in a bucket.

    It belongs to the resource only under deletionPolicy Delete: else it outlives it, and a resource of the same name takes
    it over. The annotation says whose data lies there, so that no other tenant's resource does.
    """
    volume = corpus.store
    if not isinstance(volume, Volume):
        return None
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": volume.size}}}
    if volume.class_name is not None:
        spec["storageClassName"] = volume.class_name
    rendered = manifest(corpus, "v1", "PersistentVolumeClaim", spec=spec)
    if corpus.spec.deletion_policy == "Retain":
        del rendered["metadata"]["ownerReferences"]
    return seal(with_annotations(rendered, {names.STORAGE_KEY_ANNOTATION: corpus.spec.corpus_key}))
