"""Judged collections: documents, questions, and how relevant which document is to which question."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from groundplane.demo import SCOPES, TENANTS, Tenant, load_documents, load_questions, load_unanswerable
from groundplane.wire.public import DocumentInput

REPOSITORY = Path(__file__).resolve().parents[2]
COLLECTIONS = Path(os.environ.get("GROUNDPLANE_TEST_COLLECTIONS", REPOSITORY.parent / "shared" / "data"))


class Question(NamedTuple):
    """A question, with the grade of each relevant document."""

    text: str
    relevant: Mapping[str, int]


class Collection(NamedTuple):
    """Documents and the judged questions about them."""

    documents: Sequence[DocumentInput]
    questions: Sequence[Question]


def load_beir(directory: Path) -> Collection:
    """Return a collection in the BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv."""
    documents = [
        DocumentInput(id=line["_id"], text=line["text"] or " ", title=line.get("title") or None)
        for line in _lines(directory / "corpus.jsonl")
    ]
    judgments: dict[str, dict[str, int]] = {}
    for row in (directory / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query_id, doc_id, grade = row.split("\t")
        judgments.setdefault(query_id, {})[doc_id] = int(grade)
    questions = [
        Question(line["text"], judgments[line["_id"]])
        for line in _lines(directory / "queries.jsonl")
        if any(judgments.get(line["_id"], {}).values())
    ]
    return Collection(documents, questions)


def demo_documents() -> dict[str, list[DocumentInput]]:
    """Return the demo corpus's documents by scope; ids are unique over all scopes."""
    return {
        scope: [
            DocumentInput(id=document.id, text=document.text, title=document.title, metadata=dict(document.metadata))
            for document in load_documents(scope)
        ]
        for scope in SCOPES
    }


def demo_questions() -> dict[Tenant, list[Question]]:
    """Return the judged questions of each tenant, documents named by id alone."""
    return {
        tenant: [
            Question(question.text, {name.split("/", 1)[1]: grade for name, grade in question.relevant.items()})
            for question in load_questions()
            if question.tenant == tenant
        ]
        for tenant in TENANTS
    }


def demo_unanswerable() -> dict[Tenant, list[str]]:
    """Return the questions about nothing of each tenant."""
    return {tenant: [each.text for each in load_unanswerable() if each.tenant == tenant] for tenant in TENANTS}


def ndcg(ranked: Sequence[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    """Return nDCG at `depth` of distinct document ids, gain 2^grade - 1, discount log2(rank + 1).

    Source: Burges et al. 2005, Learning to Rank using Gradient Descent.
    """
    gains = [2 ** relevant.get(doc_id, 0) - 1 for doc_id in dict.fromkeys(ranked)][:depth]
    ideal = sorted((2**grade - 1 for grade in relevant.values()), reverse=True)[:depth]
    return _discounted(gains) / _discounted(ideal)


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
