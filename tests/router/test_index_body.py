"""A batch of documents never becomes far more objects than it has bytes."""

import json
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane.process.http import decode_json
from groundplane.wire.public import MAX_BODY_BYTES, MAX_METADATA_DEPTH, MAX_METADATA_VALUES, IndexRequest
from groundplane_router.index_body import check_index_body
from groundplane_router.metadata import encode_metadata

MOST_BYTES = 64 * 1024 * 1024


def batch(documents, metadata):
    """Return a body of just below 8 MiB; `metadata` returns JSON of about so many bytes."""
    each = MAX_BODY_BYTES // documents - 100
    parts = (f'{{"id":"d{number}","text":"x",{metadata(each)}}}' for number in range(documents))
    return f'{{"documents":[{",".join(parts)}]}}'.encode()


def values(text):
    return lambda size: f'"metadata":{{"k":[{",".join([text] * (size // (len(text) + 1)))}]}}'


def keys(size):
    return f'"metadata":{{{",".join(f"{number:07d}".join(chr(34) * 2) + ":1" for number in range(size // 12))}}}'


def twice(size):
    return f'{values("1")(size)},"metadata":{{}}'


def decode(body):
    check_index_body(body)
    return decode_json(IndexRequest, body)


@pytest.mark.parametrize("documents", [1, 500])
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(values('"ab"'), id="strings"),
        pytest.param(values("300"), id="integers"),
        pytest.param(values("1.5"), id="numbers"),
        pytest.param(keys, id="keys"),
        pytest.param(twice, id="twice"),
    ],
)
def test_a_full_body_of_small_values_takes_no_multiple_of_its_size(documents, metadata):
    """Eight at once would end a router that is allowed 512 MiB."""
    body = batch(documents, metadata)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput):
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MOST_BYTES


def test_a_full_body_that_is_allowed_is_taken():
    """The check is for shapes that nobody means; commas in a text are none of its business."""
    metadata = json.dumps({f"key {number}": "värde, " * 4 for number in range(200)}, indent=2)
    text = json.dumps("a, b, c\n" * 15_000)
    parts = ",\n".join(f'{{"id": "{number}", "text": {text}, "metadata": {metadata}}}' for number in range(40))

    assert len(decode(f'{{"documents": [{parts}]}}'.encode()).documents) == 40


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"{}" + b" " * 100_000, b'{"documents": 1}' + b" " * 100_000, b"\xff" * 100_000]
)
def test_what_is_no_batch_is_left_to_the_decoder(body):
    """It knows best what is wrong with it."""
    check_index_body(body)


@given(
    st.recursive(
        st.integers(0, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner), max_leaves=40
    )
)
def test_every_value_counts_once(value):
    """A bound that nesting gets around bounds nothing."""

    assume(depth(value) < MAX_METADATA_DEPTH - 1)
    room = MAX_METADATA_VALUES - count({"v": value})
    encode_metadata({"v": value, "more": [0] * (room - 1)}, "m")

    with pytest.raises(InvalidInput, match="513 values"):
        encode_metadata({"v": value, "more": [0] * room}, "m")


def members(value):
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def count(value):
    return sum(1 + count(member) for member in members(value))


def depth(value):
    return 1 + max((depth(member) for member in members(value)), default=0)
