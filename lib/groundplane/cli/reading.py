"""From files to documents: text, Markdown, JSON Lines and the BEIR layout; what cannot be read is named, never lost.

A document's id is its path below the argument, beginning with the argument's own name (`handbook/travel.md`); a line
of JSON Lines brings its own. Links and hidden files are not followed. Where a directory holds `corpus.jsonl`, that is
the corpus and everything beside it (queries, judgments) is not.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundplane.wire.public import MAX_TEXT_CHARACTERS, DocumentInput

TEXT_SUFFIXES = frozenset({".txt", ".text", ".md", ".markdown", ".rst", ".log"})
MARKDOWN_SUFFIXES = frozenset({".md", ".markdown"})
LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})
BEIR_CORPUS = "corpus.jsonl"
MAX_FILE_BYTES = 4 * MAX_TEXT_CHARACTERS
MAX_TITLE_CHARACTERS = 1_024

_ID_FIELDS, _TEXT_FIELDS, _URI_FIELDS = ("_id", "id"), ("text", "contents"), ("uri", "url")


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be read; `name` is what its documents and its faults are called by."""

    path: Path
    name: str
    size_bytes: int


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document and the place it was read from (`file` or `file:line`), with the bytes that it took there."""

    document: DocumentInput
    place: str
    size_bytes: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """What was not read, and why: `is_fault` if it should have been, else it is no document."""

    place: str
    reason: str
    is_fault: bool
    size_bytes: int = 0


def find_files(paths: Sequence[Path]) -> tuple[list[SourceFile], list[Refused]]:
    """Return the files to be read, in order of their names within each path, and what is none."""
    files: list[SourceFile] = []
    refused: list[Refused] = []
    for path in paths:
        name = path.absolute().name or path.as_posix()
        for entry in _walk(path, name):
            match entry:
                case SourceFile():
                    files.append(entry)
                case Refused():
                    refused.append(entry)
    return files, refused


def read_documents(files: Sequence[SourceFile]) -> Iterator[ReadDocument | Refused]:
    """Yield each document of `files`, or why it is none; of two with one id the second is a fault."""
    seen: dict[str, str] = {}
    for file in files:
        for entry in _read_lines(file) if file.path.suffix.lower() in LINES_SUFFIXES else _read_text(file):
            if isinstance(entry, ReadDocument):
                first = seen.setdefault(entry.document.id, entry.place)
                if first != entry.place:
                    yield _fault(entry.place, f"has the id of {first}: rename one of them", entry.size_bytes)
                    continue
            yield entry


def _walk(path: Path, name: str) -> Iterator[SourceFile | Refused]:
    try:
        if any("\ud800" <= character <= "\udfff" for character in name):
            yield _fault(name, "has a name that is no UTF-8: rename it")
        elif path.is_dir():
            yield from _walk_directory(path, name)
        elif path.is_file():
            yield SourceFile(path=path, name=name, size_bytes=path.stat().st_size)
        else:
            yield _fault(name, "is no regular file")
    except OSError as error:
        yield _fault(name, f"cannot be read: {error.strerror}")


def _walk_directory(directory: Path, name: str) -> Iterator[SourceFile | Refused]:
    children = sorted(directory.iterdir())
    holds_corpus = any(child.name == BEIR_CORPUS for child in children)
    for child in children:
        child_name = f"{name}/{child.name}"
        if child.name.startswith(".") or child.is_symlink():
            yield Refused(place=child_name, reason="hidden, or a link", is_fault=False)
        elif holds_corpus and child.name != BEIR_CORPUS:
            yield Refused(place=child_name, reason=f"stands beside {BEIR_CORPUS}", is_fault=False)
        elif child.is_file() and child.suffix.lower() not in TEXT_SUFFIXES | LINES_SUFFIXES:
            yield Refused(place=child_name, reason="no text, Markdown or JSON Lines", is_fault=False)
        else:
            yield from _walk(child, child_name)


def _read_text(file: SourceFile) -> Iterator[ReadDocument | Refused]:
    if file.size_bytes > MAX_FILE_BYTES:
        yield _fault(
            file.name, f"has {file.size_bytes} bytes: expected at most {MAX_FILE_BYTES}; split it", file.size_bytes
        )
        return
    try:
        text = file.path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        yield _fault(file.name, f"cannot be read: {error.strerror}", file.size_bytes)
        return
    except UnicodeDecodeError:
        yield _fault(file.name, "is not UTF-8 text", file.size_bytes)
        return
    title = _markdown_title(text) if file.path.suffix.lower() in MARKDOWN_SUFFIXES else None
    document = DocumentInput(id=file.name, text=text, title=title or file.path.stem, uri=file.name)
    yield _checked(document, file.name, file.size_bytes)


def _read_lines(file: SourceFile) -> Iterator[ReadDocument | Refused]:
    try:
        with file.path.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_FILE_BYTES + 1), b""), start=1):
                place = f"{file.name}:{number}"
                if len(line) > MAX_FILE_BYTES:
                    yield _fault(
                        place, f"is a line of more than {MAX_FILE_BYTES} bytes: split it; the rest is not read"
                    )
                    return
                if line.strip():
                    yield _parse_line(line, place)
    except OSError as error:
        yield _fault(file.name, f"cannot be read: {error.strerror}", file.size_bytes)


def _parse_line(line: bytes, place: str) -> ReadDocument | Refused:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        metadata = msgspec.convert(fields.pop("metadata", None) or {}, dict[str, Any])
        doc_id, text = _take(fields, _ID_FIELDS), _take(fields, _TEXT_FIELDS)
        title, uri = _take(fields, ("title",)), _take(fields, _URI_FIELDS)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        return _fault(place, f"is no JSON object of a document: {str(error)[:128]}", len(line))
    if not doc_id or text is None:
        missing = "_id or id" if not doc_id else "text"
        return _fault(place, f'has no {missing}: expected {{"_id": …, "text": …}}', len(line))
    document = DocumentInput(
        id=doc_id, text=text, title=title or None, uri=uri or None, metadata={**fields, **metadata}
    )
    return _checked(document, place, len(line))


def _take(fields: dict[str, Any], names: Sequence[str]) -> str | None:
    """Remove `names` from `fields` and return the first that is there, as text; a number is an id too."""
    values = [fields.pop(name) for name in names if name in fields]
    value = values[0] if values else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else msgspec.convert(value, str | None)


def _checked(document: DocumentInput, place: str, size_bytes: int) -> ReadDocument | Refused:
    if len(document.text) > MAX_TEXT_CHARACTERS:
        return _fault(
            place, f"has {len(document.text)} characters: expected at most {MAX_TEXT_CHARACTERS}; split it", size_bytes
        )
    if not document.text.strip():
        return Refused(place=place, reason="is empty", is_fault=False, size_bytes=size_bytes)
    return ReadDocument(document=document, place=place, size_bytes=size_bytes)


def _markdown_title(text: str) -> str | None:
    for line in text[:4_096].splitlines():
        if line.startswith("# "):
            return line[2:].strip()[:MAX_TITLE_CHARACTERS]
    return None


def _fault(place: str, reason: str, size_bytes: int = 0) -> Refused:
    return Refused(place=place, reason=reason, is_fault=True, size_bytes=size_bytes)
