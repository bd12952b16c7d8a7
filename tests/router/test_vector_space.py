"""Two embedders write into one space or they do not; nothing in between is searched."""

import msgspec
import numpy as np
import pytest

from groundplane.errors import Unavailable
from groundplane_router.embedders import EmbeddingService
from groundplane_router.embedders.formats import Format
from groundplane_router.vector_space import check_same_space, encode_vector, make_identity
from tests.fakes.embedder import WordEmbedder


async def identity(salt="", **fields):
    service = EmbeddingService(
        WordEmbedder(salt=salt), Format(name="words", query="{text}", document="{text}"), dimension=256
    )
    made = make_identity(service, await service.probe_vectors())
    return msgspec.structs.replace(made, **fields)


async def test_the_same_embedder_has_the_same_id():
    """Two routers over one model write into one corpus."""
    first, second = await identity(), await identity()

    assert first == second
    assert len(first.id) == 32
    check_same_space(first, second)


async def test_a_model_that_answers_a_little_differently_is_the_same():
    """Another CPU rounds otherwise; the stored id goes on."""
    own = await identity()
    noise = np.random.default_rng(1).normal(0, 0.002, (3, 256))
    nudged = tuple(
        encode_vector((np.frombuffer(probe, "<f4") + noise[row]).astype(np.float32))
        for row, probe in enumerate(own.probes)
    )
    check_same_space(msgspec.structs.replace(own, probes=nudged, id="0" * 32), own)


async def test_another_model_of_equal_size_is_another_space():
    """A model swapped behind the same name shows in its probes alone."""
    with pytest.raises(Unavailable) as failure:
        check_same_space(await identity(), await identity(salt="other"))

    assert (failure.value.reason, failure.value.detail) == ("search_failed", "embedding_mismatch")


@pytest.mark.parametrize(
    "changed",
    [{"format": "e5"}, {"templates_digest": "0" * 16}, {"model": "other"}, {"fit": True}, {"probes": ()}],
    ids=lambda one: next(iter(one)),
)
async def test_any_other_field_is_another_space(changed):
    """Each of them changes what a vector means."""
    with pytest.raises(Unavailable) as failure:
        check_same_space(await identity(**changed), await identity())

    assert failure.value.detail == "embedding_mismatch"


async def test_another_size_is_named_as_such():
    """The commonest misconfiguration has its own reason."""
    with pytest.raises(Unavailable) as failure:
        check_same_space(await identity(dimension=768), await identity())

    assert (failure.value.reason, failure.value.detail) == ("dimension_mismatch", "got_256_expected_768")


async def test_damaged_probes_are_another_space():
    """Bytes that are no vectors prove nothing."""
    own = await identity()
    with pytest.raises(Unavailable):
        check_same_space(msgspec.structs.replace(own, probes=(b"abc", *own.probes[1:])), own)


async def test_a_zero_probe_is_no_proof():
    """Zero has no direction to agree with."""
    own = await identity()
    with pytest.raises(Unavailable):
        check_same_space(msgspec.structs.replace(own, probes=(bytes(1_024), *own.probes[1:])), own)
