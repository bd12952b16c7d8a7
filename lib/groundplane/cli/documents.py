"""`groundplane documents`."""

import click
from rich.text import Text

from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.terminal import data_console, notes_console, print_json, print_table, printable, printable_lines
from groundplane.wire.public import DocumentSummary

PAGE = 200


@click.group()
def documents() -> None:
    """List, show and delete documents of a corpus."""


@documents.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=PAGE, show_default=True, help="Documents at most.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@output_option
@connection_options
def list_documents(connection: Connection, *, limit: int, cursor: str | None, output: str) -> None:
    """List documents by id."""
    found: list[DocumentSummary] = []
    with connection.open("read") as client:
        while len(found) < limit:
            page = client.documents(cursor=cursor, limit=min(PAGE, limit - len(found)))
            found += page.documents
            cursor = page.cursor
            if cursor is None:
                break
    if output == "json":
        print_json({"documents": found, "cursor": cursor})
        return
    rows = [(each.id, each.title or "", str(each.chunks), str(each.sequence)) for each in found]
    print_table(("id", "title", "chunks", "sequence"), rows, right=("chunks", "sequence"))
    if cursor is not None:
        notes_console().print(f"more: --cursor {cursor}", soft_wrap=True)


@documents.command("show")
@click.argument("doc_id", metavar="ID")
@output_option
@connection_options
def show_document(connection: Connection, *, doc_id: str, output: str) -> None:
    """Show one document as it was indexed."""
    with connection.open("read") as client:
        document = client.document(doc_id)
    if output == "json":
        print_json(document)
        return
    console = data_console()
    for name, value in (("id", document.id), ("title", document.title), ("uri", document.uri)):
        if value:
            console.print(Text.assemble((f"{name:<9}", "bold"), printable(value)))
    console.print(Text.assemble((f"{'metadata':<9}", "bold"), printable(bytes(document.metadata).decode())))
    console.print()
    console.print(Text(printable_lines(document.text)))


@documents.command("delete")
@click.argument("doc_ids", metavar="ID...", nargs=-1, required=True)
@output_option
@connection_options
def delete_documents(connection: Connection, *, doc_ids: tuple[str, ...], output: str) -> int:
    """Delete documents. Exits with 1 if one of them was not there."""
    with connection.open("write") as client:
        answers = {doc_id: client.delete_document(doc_id) for doc_id in doc_ids}
    if output == "json":
        print_json(answers)
    else:
        rows = [(doc_id, "deleted" if answer.found else "not there") for doc_id, answer in answers.items()]
        print_table(("id", "outcome"), rows)
    return 0 if all(answer.found for answer in answers.values()) else 1
