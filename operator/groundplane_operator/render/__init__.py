"""What a corpus consists of in the cluster: one module a kind, pure functions from a corpus to manifests.

A builder returns the manifest as it is to be applied, sealed (see `common.seal`), or None where the corpus must not have
such an object. It renders no field that the API server would drop (an empty string or list, a false where false is the
default), since such a field would differ from the live object for ever.
"""
