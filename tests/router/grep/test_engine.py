"""The engine over real directories: what it finds, what it refuses to claim, what it never shows."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from groundplane.errors import InvalidInput
from groundplane_router.grep import GrepAnswer, GrepEngine, GrepLimits
from groundplane_router.grep import engine as engine_module
from groundplane_router.grep.beneath import open_by_component


@pytest.fixture
def make_engine(tmp_path):
    engines = []

    def make(monotonic=lambda: 0.0, **limits):
        engines.append(GrepEngine(str(tmp_path / "root"), GrepLimits(**limits), monotonic))
        return engines[-1]

    yield make
    for each in engines:
        each.close()


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def places(answer: GrepAnswer) -> list[tuple[str, int]]:
    return [(hit.file, hit.line) for hit in answer.hits]


async def test_a_hit_names_file_line_context_and_keywords(root, make_engine):
    """An agent cites a grep hit by exactly these."""
    write(root, guides__pumps="# Pumps\n\nThe Pump torque is 40 Nm.\nSee also valves.\n")

    answer = await make_engine().search("pump torque?", 5)

    (hit,) = answer.hits
    assert (hit.file, hit.line, hit.keywords) == ("guides/pumps", 3, ("pump", "torque"))
    assert hit.context == "The Pump torque is 40 Nm.\nSee also valves."
    assert 0 < hit.score <= 1
    assert (answer.complete, answer.detail, answer.files, answer.bytes) == (True, None, 1, 52)


async def test_more_keywords_then_rarer_ones_then_path_come_first(root, make_engine):
    """The order is a rule that a reader can check, and the same every time."""
    write(root, a="pump valve", b="pump seal", c="pump seal valve", d="pump valve", e="pump valve", f="other")

    answer = await make_engine().search("pump seal valve", 10)

    assert places(answer) == [("c", 1), ("b", 1), ("a", 1), ("d", 1), ("e", 1)]
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)


async def test_an_identifier_beats_as_many_chance_words(root, make_engine):
    """Who asks about E-4012 wants its page first."""
    write(root, a="the main pump alarm", b="E-4012: flow below minimum, check the pump")

    answer = await make_engine().search("what does E-4012 mean for the main pump", 5)

    assert places(answer)[0] == ("b", 1)


async def test_k_bounds_the_hits(root, make_engine):
    """The caller's k holds for every tier."""
    write(root, **{f"f{index}": "pump" for index in range(20)})

    assert places(await make_engine().search("pump", 3)) == [("f0", 1), ("f1", 1), ("f10", 1)]


async def test_many_passages_keep_the_best(root, make_engine):
    """Memory is bounded while a corpus with thousands of matches is searched, and the best still come out."""
    write(root, **{f"f{index:04}": "pump valve\n\n\n" * 5 for index in range(900)}, f0600x="pump valve seal")

    answer = await make_engine().search("pump valve seal", 2)

    assert places(answer) == [("f0600x", 1), ("f0000", 1)]


async def test_links_fifos_and_what_is_outside_are_passed_over(root, make_engine, tmp_path):
    """Whatever a link points at, inside or outside, is not the corpus."""
    write(tmp_path, secret="pump")
    write(root, inner__real="pump")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "link_dir").symlink_to(tmp_path)
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "fifo")

    answer = await make_engine().search("pump", 50)

    assert places(answer) == [("inner/real", 1)]
    assert (answer.complete, answer.files) == (True, 1)


async def test_real_files_of_a_mounted_config_map_are_searched(root, make_engine):
    """Kubernetes shows them through links into a directory whose name begins with two dots."""
    write(root, **{"..2026_01_01__page": "pump"})
    (root / "..data").symlink_to("..2026_01_01")
    (root / "page").symlink_to("..data/page")

    assert places(await make_engine().search("pump", 5)) == [("..2026_01_01/page", 1)]


async def test_a_name_that_is_not_utf_8_is_shown(root, make_engine):
    """The answer is JSON; such a name must not make it fail."""
    (root / os.fsdecode(b"caf\xe9")).write_text("pump")

    assert places(await make_engine().search("pump", 5)) == [("caf\ufffd", 1)]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_entries": 3}, id="a-million-files"),
        pytest.param({"max_bytes": 100}, id="bytes"),
        pytest.param({"max_depth": 0}, id="depth"),
        pytest.param({"max_seconds": 0.0}, id="time"),
    ],
)
async def test_over_budget_is_said(root, make_engine, limits):
    """An empty answer of a search that stopped early is not "nothing to say"."""
    write(root, **{f"f{index}": "nothing " * 10 for index in range(5)}, inner__f="pump")

    answer = await make_engine(**limits).search("pump", 5)

    assert (answer.hits, answer.complete, answer.detail) == ((), False, "grep_over_budget")


async def test_over_budget_keeps_what_was_found(root, make_engine):
    """Hits from a part of the corpus are still hits."""
    write(root, a="pump\n", b="x" * 1_000)

    answer = await make_engine(max_bytes=100).search("pump", 5)

    assert (places(answer), answer.complete, answer.bytes) == ([("a", 1)], False, 100)


async def test_time_is_looked_at_within_one_file(root, make_engine):
    """One huge file must not hold the thread past its time."""
    write(root, a="x\n" * 1_000)
    ticks = iter(range(1_000))

    answer = await make_engine(lambda: next(ticks), block_bytes=10, max_seconds=20).search("pump", 5)

    assert answer.detail == "grep_over_budget"
    assert answer.bytes < 300


async def test_exactly_the_whole_budget_is_complete(root, make_engine):
    """The bound itself is still allowed."""
    write(root, a="pump", b="pump")

    answer = await make_engine(max_entries=2).search("pump", 5)

    assert (len(answer.hits), answer.complete) == (2, True)


async def test_root_that_vanished_is_said(root, make_engine):
    """A mount that went away is not an empty corpus."""
    grep = make_engine()
    root.rmdir()

    answer = await grep.search("pump", 5)

    assert (answer.complete, answer.detail) == (False, "grep_root_unreadable")


async def test_a_root_that_was_replaced_is_searched_anew(root, make_engine, tmp_path):
    """A corpus is renewed by renaming directories."""
    grep = make_engine()
    root.rename(tmp_path / "old")
    write(tmp_path, root__new="pump")

    assert places(await grep.search("pump", 5)) == [("new", 1)]


async def test_a_file_that_cannot_be_read_makes_the_answer_incomplete(root, make_engine, monkeypatch):
    """The answer might stand in just that file."""
    write(root, a="pump", b="pump", c__d="pump")

    def refuse(directory, name, flags):
        if name in {"a", "c"}:
            raise PermissionError(13, "denied", name)
        return open_by_component(directory, name, flags)

    monkeypatch.setattr(engine_module, "choose_open", lambda _: refuse)
    answer = await make_engine().search("pump", 5)

    assert (places(answer), answer.complete, answer.detail) == ([("b", 1)], False, "grep_file_unreadable")


async def test_a_question_of_stop_words_is_a_complete_search_for_nothing(root, make_engine):
    """It is no failure, and the detail says why there are no hits."""
    answer = await make_engine().search("what is it?", 5)

    assert (answer.hits, answer.complete, answer.detail) == ((), True, "grep_no_keywords")


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_root_that_is_no_directory_stops_the_start(tmp_path, kind):
    """A typing error in the setting must not become an engine that finds nothing."""
    path = tmp_path / "file"
    if kind == "file":
        path.write_text("")

    with pytest.raises(InvalidInput, match="FACE_DCI_CORPUS_DIR=") as fault:
        GrepEngine(str(path), GrepLimits())

    assert fault.value.field == "FACE_DCI_CORPUS_DIR"


async def test_waiting_searches_are_bounded_and_a_cancelled_one_stops(root, make_engine):
    """One thread serves all callers: neither a crowd nor a caller who left may hold it."""
    write(root, a="x\n" * 1_000)
    entered, release, looks = threading.Event(), threading.Event(), []

    def clock():
        if threading.current_thread().name.startswith("grep"):
            looks.append("at the clock")
            entered.set()
            release.wait(10)
        return 0.0

    grep = make_engine(clock, max_waiting=1, block_bytes=10)
    running = asyncio.create_task(grep.search("pump", 5))
    await asyncio.to_thread(entered.wait, 10)
    refused = await grep.search("pump", 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    release.set()
    after = await grep.search("pump", 5)

    assert (refused.complete, refused.detail) == (False, "grep_busy")
    assert after.complete
    assert len(looks) < 300  # 200 blocks are one whole search, and the cancelled one was no second


@pytest.mark.timeout(60)
async def test_a_directory_swapped_for_a_link_never_shows_what_is_outside(root, make_engine, tmp_path):
    """The classic race: checked as a directory, opened as a link."""
    write(tmp_path, outside__f="pump secret")
    write(root, swapped__f="pump inside", a="pump inside", z="pump inside")
    (root / "link").symlink_to(tmp_path / "outside")
    parked, done = tmp_path / "parked", threading.Event()

    def swap():
        while not done.is_set():
            (root / "swapped").rename(parked)
            (root / "link").rename(root / "swapped")
            (root / "swapped").rename(root / "link")
            parked.rename(root / "swapped")

    swapper = threading.Thread(target=swap)
    swapper.start()
    grep = make_engine()
    try:
        answers = [await grep.search("pump", 50) for _ in range(1_000)]
    finally:
        done.set()
        swapper.join()

    assert all("secret" not in hit.context for answer in answers for hit in answer.hits)
    assert {"a", "z"} <= {hit.file for answer in answers for hit in answer.hits}
    assert {len(answer.hits) for answer in answers} <= {2, 3}
    assert all(answer.complete for answer in answers)


async def test_searching_leaks_no_descriptor(root, make_engine):
    """The router runs for months."""
    write(root, a__b__c__f="pump", a__g="x" * 1_000)
    grep = make_engine(max_bytes=100)
    await grep.search("pump", 5)
    before = open_descriptors()

    await grep.search("pump", 5)

    assert open_descriptors() == before
