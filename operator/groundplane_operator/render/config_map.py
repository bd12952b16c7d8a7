"""What a shard reads from its corpus's ConfigMap: public keys and the witness. A change of it never replaces a pod."""

from collections.abc import Mapping

import msgspec

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, manifest, seal, with_annotations
from groundplane_operator.witness import Witnessed


def render_config_map(corpus: Corpus, public_keys: Mapping[str, str], witnessed: Witnessed | None) -> Manifest:
    """Return the ConfigMap. `public_keys`: PEM by file name; without `witnessed` there is no witness.json yet."""
    files = dict(sorted(public_keys.items()))
    if witnessed is None:
        return seal(manifest(corpus, "v1", "ConfigMap", data=files))
    files[names.WITNESS_FILE] = msgspec.json.encode(witnessed.witness).decode()
    rendered = manifest(corpus, "v1", "ConfigMap", data=files)
    return seal(with_annotations(rendered, {names.WITNESSED_ANNOTATION: witnessed.at}))
