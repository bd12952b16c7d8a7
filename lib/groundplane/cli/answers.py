"""Answers as people read them: the hits with what they rest on, and what the answer does not establish."""

from collections.abc import Iterator, Mapping

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from groundplane.cli.terminal import data_console, print_json, printable, printable_lines
from groundplane.wire.names import Reason, Scope
from groundplane.wire.public import EvidenceAnswer, GroundAnswer, Hit, MemoAnswer, ScopeReport, Searched, Unavailability

SNIPPET_CHARACTERS = 280
INDENT = 4
_NOT_ASKED = "not_searched"  # a scope that the reason of the whole answer kept from being asked

_STATUS_STYLE = {"grounded": "bold green", "nothing": "bold", "degraded": "bold yellow"}
_TIER_TEXT = {"memo": "memo", "hybrid": "hybrid search", "grep": "keyword search in files", "none": "no tier answered"}
SCOPE_STYLE = {"tenant": "cyan", "platform": "magenta", "local": "yellow"}
_MATCH_TEXT = {"semantic": "by meaning", "keyword": "by keywords", "both": "by meaning and keywords"}
REASON_TEXT: Mapping[Reason, str] = {
    Reason.NO_CORPUS: "the caller's corpus is not ready",
    Reason.NO_EMBEDDER: "no embedder is configured",
    Reason.EMBED_ERROR: "the embedder failed",
    Reason.DIMENSION_MISMATCH: "the embedder's vectors have another size than the index",
    Reason.ZERO_VECTOR: "the embedder made nothing of this question",
    Reason.SEARCH_FAILED: "a corpus could not be searched",
}


def print_ground(answer: GroundAnswer) -> None:
    """Write an answer of `ground` to stdout."""
    console = data_console()
    console.print(_headline(answer))
    if answer.unavailable is not None:
        console.print(Text(f"corpora not searched: {unavailable_text(answer.unavailable)}", "yellow"))
    if answer.memo is not None:
        _print_memo(console, answer.memo)
    _print_hits(console, answer.hits)
    _print_notes(console, [*ground_notes(answer), *_scope_notes(answer.searched)])


def print_evidence(answer: EvidenceAnswer) -> None:
    """Write an answer of `evidence` to stdout."""
    console = data_console()
    found = (f"{len(answer.hits)} hits", "bold green") if answer.hits else ("nothing found", "bold")
    console.print(Text.assemble(found, _facts(semantic=answer.semantic, total_ms=answer.timing_ms.total)))
    _print_hits(console, answer.hits)
    _print_notes(console, [*_hit_notes(answer.hits, semantic=answer.semantic), *_scope_notes(answer.searched)])


def unavailable_text(unavailable: Unavailability) -> str:
    """Return why the corpora could not be searched, in words and as the code."""
    code = (
        unavailable.reason if unavailable.detail is None else f"{unavailable.reason}: {printable(unavailable.detail)}"
    )
    return f"{REASON_TEXT[unavailable.reason]} ({code})"


def ground_notes(answer: GroundAnswer) -> list[str]:
    """Return what an answer does not establish."""
    if answer.tier == "memo":
        return ["a memo is a stored answer to exactly this name and fingerprint; nothing was searched"]
    if answer.tier == "grep":
        return ["these are keyword matches: the words stand in these lines, what they mean was not looked at"]
    if answer.status == "nothing":
        return ["searched, nothing to say: that is an absence in these corpora, not a finding about the world"]
    if answer.tier == "none":
        return ['this is not "nothing found": the question could not be searched, ask again later']
    return _hit_notes(answer.hits, semantic=answer.semantic)


def _headline(answer: GroundAnswer) -> Text:
    status = (answer.status, _STATUS_STYLE[answer.status])
    semantic = None if answer.tier == "memo" else answer.semantic
    facts = _facts(semantic=semantic, total_ms=answer.timing_ms.total)
    return Text.assemble(status, f" · {_TIER_TEXT[answer.tier]}", facts)


def _facts(*, semantic: bool | None, total_ms: float) -> str:
    """Return what else is worth the first line; `semantic` is None where meaning had no part in the answer."""
    shown = {True: " · semantic on", False: " · semantic off", None: ""}[semantic]
    return f"{shown} · {total_ms:.0f} ms"


def _print_hits(console: Console, hits: list[Hit]) -> None:
    for hit in hits:
        console.print()
        scope = hit.scope.value
        title = printable(hit.title or hit.doc_id)
        console.print(
            Text.assemble(
                (f"{hit.rank:>2}  ", "bold"),
                (f"{hit.score:.3f}  ", "bold"),
                (f"{scope:<8}  ", SCOPE_STYLE[scope]),
                (title, "bold"),
            )
        )
        for line in _hit_lines(console, hit):
            console.print(Padding(line, (0, 0, 0, INDENT), expand=False))


def _hit_lines(console: Console, hit: Hit) -> Iterator[Text]:
    doc_id = hit.chunk_id if hit.scope is Scope.LOCAL else hit.doc_id  # of a file the chunk says the line
    yield Text(" · ".join(printable(part) for part in (doc_id, hit.uri, hit.heading) if part), "dim")
    yield Text(f"{_MATCH_TEXT[hit.match]}{scores_text(hit)}", "dim")
    if hit.explain is not None:
        yield Text(_explain_text(hit), "dim")
    yield Text(snippet(hit, SNIPPET_CHARACTERS if console.is_terminal else None))


def snippet(hit: Hit, max_characters: int | None) -> str:
    """Return the beginning of a hit's text on one line, without the heading that is shown beside it, cut at a word."""
    lines = hit.text.lstrip().split("\n")
    text = printable(" ".join(lines[1:] if hit.heading and lines[0].startswith("#") else lines))
    if max_characters is None or len(text) <= max_characters:
        return text
    return text[:max_characters].rsplit(" ", 1)[0].rstrip(" .,;:") + " …"


def scores_text(hit: Hit) -> str:
    """Return the parts of a hit's score, each with its rank in its leg, to be put behind something else."""
    parts = []
    for name, value, rank in (
        ("dense", hit.scores.dense, hit.scores.dense_rank),
        ("bm25", hit.scores.bm25, hit.scores.bm25_rank),
    ):
        if value is not None:
            parts.append(f"{name} {value:.2f}" + ("" if rank is None else f" (#{rank})"))
    return "".join(f" · {part}" for part in parts)


def _explain_text(hit: Hit) -> str:
    if hit.explain is None:
        return ""
    floor = "off" if hit.explain.dense_floor is None else f"{hit.explain.dense_floor:.2f}"
    terms = printable(", ".join(hit.explain.matched_terms)) or "none"
    share = f"{hit.explain.matched_idf_share:.0%} of the query's weight, floor {hit.explain.term_floor:.0%}"
    return f"dense floor {floor} · terms {terms} ({share})"


def _print_memo(console: Console, memo: MemoAnswer) -> None:
    stale = {
        True: "stale: the corpora have changed since",
        False: "its basis is unchanged",
        None: "basis could not be checked",
    }
    console.print(Text(stale[memo.stale], "yellow" if memo.stale else "dim"))
    response = msgspec.json.decode(memo.response)
    if isinstance(response, str):
        console.print(Text(printable_lines(response)))
    else:
        print_json(response)


def _print_notes(console: Console, notes: list[str]) -> None:
    if notes:
        console.print()
    for note in notes:
        console.print(Text(f"note: {note}", "italic dim"))


def _hit_notes(hits: list[Hit], *, semantic: bool) -> list[str]:
    if not hits:
        return ["searched, nothing to say: that is an absence in these corpora, not a finding about the world"]
    notes = ["scores compare only within this answer"]
    if any(hit.match == "keyword" for hit in hits):
        notes.append("a hit by keywords establishes that the words stand there, no more")
    return notes if semantic else [*notes, "meaning was not searched: semantic grounding is off for this corpus"]


def _scope_notes(searched: Searched) -> list[str]:
    reports: dict[str, ScopeReport | None] = {
        "tenant corpus": searched.tenant, "platform corpus": searched.platform, "local files": searched.local,
        "memo": searched.memo,
    }  # fmt: skip
    failed = {name: report for name, report in reports.items() if report is not None and not report.ok}
    failed = {name: report for name, report in failed.items() if report.detail != _NOT_ASKED}
    return [f"{name}: not searched ({printable(report.detail or 'failed')})" for name, report in failed.items()]
