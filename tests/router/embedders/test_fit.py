"""The fit rule: cut then normalise, never pad, refuse what has no direction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from groundplane.errors import Unavailable
from groundplane_router.embedders.fit import fit_vectors

VALUES = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=VALUES)


@given(ROWS, st.data())
def test_every_row_has_length_one_or_is_reported_zero(raw, data):
    """Scores are cosines only if every stored vector has length 1; float32 squares must not overflow on the way."""
    dimension = data.draw(st.integers(1, raw.shape[1]))

    rows, zero = fit_vectors(raw, dimension=dimension, rule="cut")

    assert rows.shape == (len(raw), dimension)
    assert rows.dtype == np.float32
    assert zero == {row for row in range(len(raw)) if not raw[row, :dimension].any()}
    for row, vector in enumerate(rows):
        assert np.linalg.norm(vector) == pytest.approx(0.0 if row in zero else 1.0, abs=1e-5)


def test_cut_comes_before_normalising():
    """The other order leaves vectors shorter than 1."""
    rows, _ = fit_vectors(np.array([[3, 4, 12]], np.float32), dimension=2, rule="cut")

    np.testing.assert_allclose(rows, [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    ("native", "dimension", "rule"),
    [(2, 3, "cut"), (2, 3, "exact"), (3, 2, "exact")],
    ids=["shorter-cut", "shorter-exact", "longer-exact"],
)
def test_other_sizes_are_a_mismatch(native, dimension, rule):
    """Padding would hide that the index was made for another model."""
    with pytest.raises(Unavailable) as caught:
        fit_vectors(np.ones((1, native), np.float32), dimension=dimension, rule=rule)

    assert (caught.value.reason, caught.value.code) == ("dimension_mismatch", "retrieval_unavailable")
    assert caught.value.detail == f"got_{native}_expected_{dimension}"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(value):
    """One NaN makes every score of a query NaN, and the order of the hits chance."""
    with pytest.raises(Unavailable) as caught:
        fit_vectors(np.array([[1, 2], [value, 1]], np.float32), dimension=2, rule="exact")

    assert (caught.value.reason, caught.value.detail) == ("embed_error", "not_finite")


def test_mismatch_is_reported_before_odd_values():
    """The size is a fault of the configuration and comes first whatever the vectors hold."""
    with pytest.raises(Unavailable) as caught:
        fit_vectors(np.full((1, 3), np.nan, np.float32), dimension=2, rule="exact")

    assert caught.value.reason == "dimension_mismatch"
