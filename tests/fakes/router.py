"""A small router for tests of the command line: documents and memos in dictionaries, answers and problems as told."""

import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import msgspec

from groundplane.wire.names import Scope
from groundplane.wire.public import (
    Basis,
    CorpusAnswer,
    CorpusReport,
    DocumentAnswer,
    DocumentInput,
    DocumentList,
    DocumentResult,
    DocumentSummary,
    IndexAnswer,
    IndexRequest,
    MemoAnswer,
    MemoInput,
    Problem,
    ReindexAnswer,
    WriteAnswer,
)
from tests.fakes.answers import evidence_answer, ground_answer


class FakeRouter:
    """What it holds, what it was asked, and what it is told to say next."""

    def __init__(self) -> None:
        self.url = ""
        self.documents: dict[str, DocumentInput] = {}
        self.memos: dict[tuple[str, str], bytes] = {}
        self.ground: Any = ground_answer()
        self.evidence: Any = evidence_answer()
        self.problems: list[Problem] = []
        self.reindex: list[ReindexAnswer] = []
        self.refused_ids: frozenset[str] = frozenset()
        self.requests: list[tuple[str, str, bytes]] = []
        self.tokens: set[str] = set()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """Return the answer, or the Problem, for one request."""
        self.requests.append((method, path, body))
        if self.problems:
            return self.problems.pop(0)
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")][1:]
        match (method, *parts):
            case ("POST", "ground"):
                return self.ground
            case ("POST", "evidence"):
                return self.evidence
            case ("POST", "documents"):
                return self._index(msgspec.json.decode(body, type=IndexRequest).documents)
            case ("GET", "documents"):
                summaries = [
                    DocumentSummary(id=each, title=None, uri=None, chunks=1, sequence=1)
                    for each in sorted(self.documents)
                ]
                return DocumentList(documents=summaries, cursor=None)
            case ("GET", "documents", doc_id) if doc_id in self.documents:
                found = self.documents[doc_id]
                raw = msgspec.Raw(msgspec.json.encode(found.metadata))
                return DocumentAnswer(
                    id=doc_id, text=found.text, title=found.title, uri=found.uri, metadata=raw, chunks=1, sequence=1
                )
            case ("DELETE", "documents", doc_id):
                return WriteAnswer(position="p", found=self.documents.pop(doc_id, None) is not None)
            case (_, "memos", name, fingerprint):
                return self._memo(method, (name, fingerprint), body)
            case (_, "corpus", *rest):
                return self._corpus(rest)
            case _:
                return problem(404, "not_found")

    def _corpus(self, rest: list[str]) -> Any:
        if rest == ["reindex"]:
            return self.reindex.pop(0)
        report = CorpusReport(scope=Scope.TENANT, ready=True, documents=len(self.documents), age_seconds=61.5)
        return CorpusAnswer(corpus=report, platform=None, semantic_active=True, access=["read"])

    def _memo(self, method: str, key: tuple[str, str], body: bytes) -> Any:
        if method == "PUT":
            self.memos[key] = bytes(msgspec.json.decode(body, type=MemoInput).response)
            return WriteAnswer(position="p")
        if method == "DELETE":
            return WriteAnswer(position="p", found=self.memos.pop(key, None) is not None)
        if key not in self.memos:
            return problem(404, "memo_not_found")
        return MemoAnswer(response=msgspec.Raw(self.memos[key]), stale=False, basis=Basis())

    def _index(self, documents: Sequence[DocumentInput]) -> IndexAnswer | Problem:
        for number, document in enumerate(documents):
            if document.id in self.refused_ids:
                return problem(400, "invalid_body", field=f"documents[{number}].id")
        results = []
        for document in documents:
            known = self.documents.get(document.id) == document
            self.documents[document.id] = document
            results.append(DocumentResult(id=document.id, outcome="unchanged" if known else "indexed", chunks=1))
        return IndexAnswer(position=f"p{len(self.requests)}", results=results)


def problem(status: int, code: str, **more: Any) -> Problem:
    """Return a problem document."""
    return Problem(type="about:blank", title="title", status=status, code=code, detail=f"detail of {code}", **more)


@contextmanager
def running_router() -> Iterator[FakeRouter]:
    """Serve a fake router on a free port of this machine."""
    router = FakeRouter()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            router.tokens.add(self.headers.get("authorization", ""))
            answer = router.answer(self.command, self.path, body)
            content = msgspec.json.encode(answer)
            self.send_response(answer.status if isinstance(answer, Problem) else 200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    router.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield router
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
