"""From a model's raw vector to one of the index: exact size, length 1, or a clear refusal.

Cutting comes before normalising: the other way round the cut vector is shorter than 1. Nothing is ever padded: zeros would
keep the cosines and hide that the model is not the one the index was made for.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from groundplane.errors import Unavailable

Vector = NDArray[np.float32]
"""One-dimensional float32, or rows of such."""

FitRule = Literal["exact", "cut"]

UNAVAILABLE_CODE = "retrieval_unavailable"


def fit_vectors(raw: Vector, *, dimension: int, rule: FitRule) -> tuple[Vector, frozenset[int]]:
    """Return `raw` (n, native) as float32 (n, dimension) rows of length 1, and which rows were all zero and stay so.

    Raises Unavailable: `dimension_mismatch` for a length the rule does not allow, `embed_error` for NaN or infinity.
    """
    native = raw.shape[1]
    if native != dimension and (native < dimension or rule == "exact"):
        raise Unavailable(
            f"embedder answered vectors of {native} values, the index has {dimension}: "
            "set MODEL_EMBEDDING_DIM to the model's size, or use a model and format that can be cut",
            code=UNAVAILABLE_CODE,
            reason="dimension_mismatch",
            detail=f"got_{native}_expected_{dimension}",
        )
    if not np.isfinite(raw).all():
        raise embed_error("embedder answered a vector with NaN or infinity", detail="not_finite")
    cut = raw[:, :dimension].astype(np.float64)  # float32 squares of large values overflow
    norms = np.linalg.norm(cut, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = np.where(norms > 0, cut / norms, 0.0).astype(np.float32)
    return rows, frozenset(np.flatnonzero(norms[:, 0] == 0).tolist())


def embed_error(message: str, *, detail: str, retry_after_seconds: int | None = None) -> Unavailable:
    """Return the failure of an embedder that did not answer, or not with vectors."""
    return Unavailable(
        message,
        code=UNAVAILABLE_CODE,
        reason="embed_error",
        detail=detail,
        retry_after_seconds=retry_after_seconds,
    )


def zero_vector_error() -> Unavailable:
    """Return the failure of a text that the model maps to nothing, so that it has no neighbours."""
    return Unavailable(
        "embedder answered an all-zero vector: it has no direction to compare",
        code=UNAVAILABLE_CODE,
        reason="zero_vector",
        detail="zero_vector",
    )
