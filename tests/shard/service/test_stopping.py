"""How a shard stops, and the directory in which it works."""

import asyncio
import signal

from groundplane.errors import OutcomeUnknown
from tests.shard.shard_parts import (
    LAYOUT,
    doc_ids,
    document,
    is_writable,
    make_shard,
    outcome,
    running,
    serving_of,
    settled,
    until,
    write_request,
)
from tests.support.failing_store import nothing, waiting


async def test_a_stop_waits_for_the_record_on_its_way(shard, store, tmp_path):
    """Its caller gets an answer, and the snapshot of the stop holds it."""
    lifespan = shard.lifespan(None)
    await lifespan.__aenter__()
    await until(lambda: is_writable(shard))
    await shard.write(write_request(document("a")))
    release = asyncio.Event()
    store.rule = waiting(release, "create", key=LAYOUT.log)
    asked = len(store.calls)
    writing = asyncio.create_task(shard.write(write_request(document("b"))))
    await until(lambda: any(call.verb == "create" for call in store.calls[asked:]))
    stopping = asyncio.create_task(lifespan.__aexit__(None, None, None))
    await settled()
    assert not stopping.done()
    release.set()
    await stopping
    done = await writing
    async with running(make_shard(store, tmp_path / "again")) as again:
        assert again.status().snapshot_sequence == done.sequence


async def test_a_stop_waits_for_the_snapshot_under_way(shard, store):
    """It is nearly done; cut off, the next start would read the whole tail."""
    lifespan = shard.lifespan(None)
    await lifespan.__aenter__()
    await until(lambda: is_writable(shard))
    done = await shard.write(write_request(document("a")))
    release = asyncio.Event()
    store.rule = waiting(release, "upload")
    publishing = asyncio.create_task(shard.snapshot())
    await until(lambda: any(call.verb == "upload" for call in store.calls))
    stopping = asyncio.create_task(lifespan.__aexit__(None, None, None))
    await settled()
    release.set()
    await stopping

    assert (await publishing).snapshot_sequence == done.sequence
    assert shard.unready_detail == "stopping"


async def test_a_stop_without_a_store_is_a_stop_all_the_same(shard, store, tmp_path):
    """SIGTERM must not hang, and the log has everything."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        store.rule = lambda _: "refused"
    store.rule = nothing
    async with running(make_shard(store, tmp_path / "again")) as again:
        assert await doc_ids(again) == ["a"]


async def test_a_bug_ends_the_process(shard, monkeypatch, caplog):
    """A task that died by a bug leaves a shard that is unready for ever and that nobody starts again."""
    signals: list[signal.Signals] = []
    monkeypatch.setattr(signal, "raise_signal", signals.append)
    async with running(shard):

        async def wrong(_sequence, _operations):
            raise TypeError("wrong")

        monkeypatch.setattr(serving_of(shard).corpus, "apply", wrong)
        error = await outcome(shard.write(write_request(document("a"))))
        await until(lambda: bool(signals))

    assert isinstance(error, OutcomeUnknown)
    assert signals == [signal.SIGTERM]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["shard_failed"]


async def test_an_orderly_stop_is_no_bug(shard, monkeypatch):
    """The same callback sees both."""
    signals: list[signal.Signals] = []
    monkeypatch.setattr(signal, "raise_signal", signals.append)
    async with running(shard):
        pass
    await settled()

    assert signals == []


async def test_the_work_directory_is_emptied_and_stays_itself(shard):
    """Nothing local is trusted across starts; the directory may be a mount point, which cannot be made anew."""
    directory = shard._work_directory
    directory.mkdir(mode=0o755)
    (directory / "table-1" / "deep").mkdir(parents=True)
    (directory / "stray").write_text("old")
    (directory / "link").symlink_to("/")
    inode = directory.stat().st_ino
    async with running(shard):
        found = sorted(path.name for path in directory.iterdir())

        assert found == ["table-1"]
        assert not (directory / "table-1" / "deep").exists()
        assert (directory.stat().st_ino, directory.stat().st_mode & 0o777) == (inode, 0o700)


async def test_a_work_directory_that_cannot_be_used_is_said_and_tried_again(store, tmp_path, clock):
    """A full or read-only disk is nothing that a restart loop would mend."""
    (tmp_path / "file").write_text("in the way")
    shard = make_shard(store, tmp_path / "file", clock=clock)
    async with running(shard, is_ready=False):
        await until(lambda: clock.sleeping == 1)
        detail = shard.unready_detail
        (tmp_path / "file").unlink()
        clock.advance(1.0)
        await until(lambda: is_writable(shard))

    assert detail == "local_disk"
