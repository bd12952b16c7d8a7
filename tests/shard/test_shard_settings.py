"""Settings of the shard: those that are right one by one may still be wrong together."""

import pytest

from groundplane.errors import InvalidInput
from groundplane.tokens import SigningKey
from groundplane.wire.internal import MAX_WRITE_BYTES
from groundplane_shard.settings import MIB, read_shard_settings


def environment(root, **changes):
    keys = root / "keys"
    keys.mkdir(exist_ok=True)
    (keys / "router-1.pem").write_bytes(SigningKey.generate().public_pem())
    return {
        "GROUNDPLANE_CORPUS_KEY": "t-acme",
        "GROUNDPLANE_INCARNATION": "00000000-0000-4000-8000-00000000000a",
        "GROUNDPLANE_STORE_DIRECTORY": str(root / "store"),
        "GROUNDPLANE_WORK_DIRECTORY": str(root / "work"),
        "GROUNDPLANE_KEYS_DIRECTORY": str(root / "keys"),
        **{f"GROUNDPLANE_{name}": value for name, value in changes.items()},
    }


def test_the_defaults_fit_together(tmp_path):
    """What nobody sets must work."""
    settings = read_shard_settings(environment(tmp_path))

    assert (settings.snapshot_records, settings.flush_mib, settings.memtable_mib) == (1_000, 64, 256)


@pytest.mark.parametrize("work", ["", "store", "store/..", "link"])
@pytest.mark.parametrize("variable", ["GROUNDPLANE_STORE_DIRECTORY", "GROUNDPLANE_KEYS_DIRECTORY"])
def test_a_work_directory_that_holds_something_kept_is_refused(tmp_path, work, variable):
    """It is emptied at every start: one wrong line would delete the log of the corpus."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "router-1.pem").write_bytes(SigningKey.generate().public_pem())
    (tmp_path / "link").symlink_to(tmp_path)
    settings = environment(tmp_path, WORK_DIRECTORY=str(tmp_path / work)) | {variable: str(tmp_path / "store")}

    with pytest.raises(InvalidInput, match=f"holds {variable}=") as caught:
        read_shard_settings(settings)
    assert caught.value.code == "invalid_settings"


def test_a_work_directory_inside_or_beside_the_store_is_fine(tmp_path):
    """Names that only begin alike are different directories."""
    assert read_shard_settings(environment(tmp_path, WORK_DIRECTORY=str(tmp_path / "store-work")))


def test_writes_that_would_be_refused_before_a_flush_begins_are_a_fault(tmp_path):
    """Such a shard takes writes for a while and then none."""
    with pytest.raises(InvalidInput, match="GROUNDPLANE_MEMTABLE_MIB=64: expected more"):
        read_shard_settings(environment(tmp_path, MEMTABLE_MIB="64", FLUSH_MIB="64"))


def test_all_faults_of_the_combination_are_told_at_once(tmp_path):
    """Whoever mends a manifest wants to do it once."""
    with pytest.raises(InvalidInput) as caught:
        read_shard_settings(environment(tmp_path, WORK_DIRECTORY=str(tmp_path), MEMTABLE_MIB="2"))

    assert len(caught.value.message.splitlines()) == 3


def test_every_faulty_setting_is_named_whatever_finds_the_fault(tmp_path):
    """ "corpus key '../x'" does not say which of thirty variables is wrong."""
    settings = environment(
        tmp_path, CORPUS_KEY="../x", INCARNATION="x", LANGUAGE="klingon", PORT="abc", KEYS_DIRECTORY=str(tmp_path),
        OBJECT_STORE="s3://also",
    )  # fmt: skip
    with pytest.raises(InvalidInput) as caught:
        read_shard_settings(settings)

    faults = caught.value.message.splitlines()
    names = ["CORPUS_KEY", "INCARNATION", "KEYS_DIRECTORY", "PORT", "LANGUAGE", "STORE_DIRECTORY"]
    assert sorted(fault.partition("=")[0].partition(" ")[0] for fault in faults) == sorted(
        f"GROUNDPLANE_{name}" for name in names
    )
    assert all("expected" in fault for fault in faults)
    assert "GROUNDPLANE_CORPUS_KEY=../x: expected platform, t-<dns label> or h-<40 hex digits>" in faults


def test_all_bodies_together_always_hold_the_largest_one(tmp_path):
    """A bound below it would refuse a full write for ever, with "try again"."""
    with pytest.raises(InvalidInput, match="GROUNDPLANE_BODIES_MIB=63: expected"):
        read_shard_settings(environment(tmp_path, BODIES_MIB="63"))
    assert read_shard_settings(environment(tmp_path, BODIES_MIB="64")).bodies_mib * MIB >= MAX_WRITE_BYTES
