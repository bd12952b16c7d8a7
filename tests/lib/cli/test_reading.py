"""From files to documents: everything is read or named."""

import os
from pathlib import Path

import pytest

from groundplane.cli import reading
from groundplane.cli.reading import ReadDocument, Refused, find_files, read_documents


def read(*paths: Path) -> tuple[list[ReadDocument], list[Refused]]:
    """Return what is read from `paths` and what is refused."""
    files, refused = find_files(paths)
    entries = list(read_documents(files))
    read_ones = [entry for entry in entries if isinstance(entry, ReadDocument)]
    return read_ones, [*refused, *(entry for entry in entries if isinstance(entry, Refused))]


def faults(refused: list[Refused]) -> dict[str, str]:
    return {each.place: each.reason for each in refused if each.is_fault}


@pytest.fixture
def docs(tmp_path):
    directory = tmp_path / "docs"
    directory.mkdir()
    return directory


def test_directories_are_read_recursively_and_ids_are_paths(docs):
    """The id says where a hit comes from, and stays the same at the next run from another place."""
    (docs / "travel").mkdir()
    (docs / "travel" / "trains.md").write_text("intro\n# Trains first\n\nBelow 600 km.")
    (docs / "lunch.txt").write_text("At noon.")

    found, _ = read(docs)

    assert [(each.document.id, each.document.title) for each in found] == [
        ("docs/lunch.txt", "lunch"),
        ("docs/travel/trains.md", "Trains first"),
    ]


def test_json_lines_bring_their_own_ids_and_keep_other_fields(docs):
    """BEIR's fields and the ones of our own format are one format."""
    (docs / "notes.jsonl").write_text(
        '{"_id": "1", "title": "T", "text": "x", "metadata": {"a": 1}, "team": "b"}\n\n{"id": 2, "contents": "y", "url": "u"}\n'
    )

    found, _ = read(docs)

    first, second = (each.document for each in found)
    assert (first.id, first.title, first.metadata) == ("1", "T", {"team": "b", "a": 1})
    assert (second.id, second.text, second.uri) == ("2", "y", "u")


def test_a_beir_directory_is_its_corpus(docs):
    """Queries and judgments are no documents, though they look like some."""
    (docs / "corpus.jsonl").write_text('{"_id": "1", "text": "x"}\n')
    (docs / "queries.jsonl").write_text('{"_id": "q1", "text": "what"}\n')
    (docs / "qrels").mkdir()

    found, refused = read(docs)

    assert [each.document.id for each in found] == ["1"]
    assert {each.place for each in refused} == {"docs/queries.jsonl", "docs/qrels"}


def test_what_is_no_document_is_skipped_and_named(docs):
    """A count without names sends people searching."""
    (docs / "logo.png").write_bytes(b"\x89PNG")
    (docs / ".hidden.txt").write_text("x")
    (docs / "empty.txt").write_text(" \n")
    (docs / "link.txt").symlink_to("/etc/hostname")

    found, refused = read(docs)

    assert found == []
    assert {each.place for each in refused} == {"docs/logo.png", "docs/.hidden.txt", "docs/empty.txt", "docs/link.txt"}
    assert faults(refused) == {}


def test_what_should_have_been_read_is_a_fault_with_its_line(docs):
    """A line that is lost silently is missed when it is needed."""
    (docs / "notes.jsonl").write_text(
        '{"_id": "1", "text": "x"}\n{"text": "y"}\n[1]\n{"_id": "4", "text": 5.5}\n{"_id":"5"}\n'
    )
    (docs / "latin.txt").write_bytes("café".encode("latin-1"))

    found, refused = read(docs)

    assert [each.document.id for each in found] == ["1"]
    assert set(faults(refused)) == {f"docs/notes.jsonl:{line}" for line in (2, 3, 4, 5)} | {"docs/latin.txt"}


def test_the_second_document_of_an_id_is_a_fault_that_names_the_first(docs):
    """It would replace the first, and which one stays would depend on the order of files."""
    (docs / "a.jsonl").write_text('{"_id": "1", "text": "x"}\n')
    (docs / "b.jsonl").write_text('{"_id": "1", "text": "y"}\n')

    found, refused = read(docs)

    assert len(found) == 1
    assert faults(refused) == {"docs/b.jsonl:1": "has the id of docs/a.jsonl:1: rename one of them"}


def test_a_pipe_is_refused_and_not_waited_for(docs):
    """Reading a FIFO would hang for ever."""
    os.mkfifo(docs / "pipe.txt")

    _, refused = read(docs)

    assert faults(refused) == {"docs/pipe.txt": "is no regular file"}


def test_windows_marks_and_line_ends_are_read(docs):
    """A byte order mark is no part of the text."""
    (docs / "a.md").write_bytes(b"\xef\xbb\xbf# Title\r\ntext")

    (found,), _ = read(docs)

    assert found.document.title == "Title"
    assert found.document.text.startswith("# Title")


def test_a_name_that_is_no_text_is_a_fault(docs):
    """It cannot be an id, and must not end the run with a traceback."""
    (Path(os.fsdecode(os.fsencode(docs) + b"/caf\xe9.txt"))).write_text("x")

    found, refused = read(docs)

    assert found == []
    assert [each.reason for each in refused if each.is_fault] == ["has a name that is no UTF-8: rename it"]


def test_an_endless_line_is_a_fault_and_not_read_into_memory(docs, monkeypatch):
    """A wrong file must not take the machine down."""
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 100)
    (docs / "a.jsonl").write_text('{"_id": "1", "text": "x"}\n' + '"' + "y" * 500)

    found, refused = read(docs)

    assert [each.document.id for each in found] == ["1"]
    assert list(faults(refused)) == ["docs/a.jsonl:2"]
