"""Switch records stay readable: their payload is compared with bytes written down here."""

import pytest

from groundplane.errors import CorruptData
from groundplane_shard.switches import Switch, decode, encode

WRITTEN = {
    b'{"step":"begin","current":"00000000000000000000000000000001","target":"00000000000000000000000000000002"}': Switch(
        step="begin", current=f"{1:032x}", target=f"{2:032x}"
    ),
    b'{"step":"switch","current":null,"target":"00000000000000000000000000000002"}': Switch(
        step="switch", current=None, target=f"{2:032x}"
    ),
    b'{"step":"abandon","current":"00000000000000000000000000000001","target":"00000000000000000000000000000002"}': Switch(
        step="abandon", current=f"{1:032x}", target=f"{2:032x}"
    ),
}


@pytest.mark.parametrize(("payload", "switch"), WRITTEN.items(), ids=lambda value: getattr(value, "step", "payload"))
def test_a_step_is_stored_as_it_ever_was(payload, switch):
    """A log outlives the software that wrote it."""
    assert (encode(switch), decode(payload, key="log/7")) == (payload, switch)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b'{"step":"leap","current":null,"target":""}', b"\xff"],
    ids=["empty", "bare", "step", "bytes"],
)
def test_anything_else_is_damage_and_names_the_record(payload):
    """A step that cannot be read is never skipped."""
    with pytest.raises(CorruptData, match="log/7"):
        decode(payload, key="log/7")
