"""The demo corpus is well formed, and holds the kinds of question it was written to show. Ranking is tested elsewhere."""

import re
from collections import Counter
from datetime import date
from typing import get_args

import pytest

from groundplane import demo
from groundplane.analysis import Analyser

DOCUMENTS = {scope: demo.load_documents(scope) for scope in demo.SCOPES}
QUESTIONS = demo.load_questions()
UNANSWERABLE = demo.load_unanswerable()
BY_REFERENCE = {f"{scope}/{one.id}": one for scope, documents in DOCUMENTS.items() for one in documents}
GREP_FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(demo.grep_path().iterdir())}

ANALYSER = Analyser()
STOP_WORDS = set(
    re.findall(
        r"\w+",
        """
    a an and are as at be before by can could do does for from get have how i if in is it may me my of on or our over
    should the them there they this to we were what when where which who why with without would you
    """,
    )
)

every_scope = pytest.mark.parametrize("scope", demo.SCOPES)
every_question = pytest.mark.parametrize("question", [pytest.param(one, id=one.id) for one in QUESTIONS])


def content_terms(text: str) -> set[str]:
    """Return the terms of `text` that keyword search has to go by."""
    return {
        term for word in re.findall(r"\w+", text.lower()) if word not in STOP_WORDS for term in ANALYSER.terms(word)
    }


def asked(text: str) -> list[demo.DemoQuestion]:
    """Return the judged questions with these words."""
    return [question for question in QUESTIONS if question.text == text]


def test_collection_has_its_size():
    """A corpus cut short by a bad edit would make every quality figure meaningless."""
    assert sum(len(documents) for documents in DOCUMENTS.values()) >= 130
    assert len(QUESTIONS) >= 66
    assert len(UNANSWERABLE) >= 45


@every_scope
def test_document_ids_are_unique_and_begin_with_their_scope(scope):
    """A judgment, a delete and a demo transcript name a document by its id alone."""
    ids = [document.id for document in DOCUMENTS[scope]]

    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(rf"{scope}(-[a-z0-9]+)+", one) for one in ids)


@every_scope
def test_documents_are_short_with_a_few_long_ones(scope):
    """Short documents are one chunk; the long ones, with headings, show chunking."""
    words = {document.id: len(document.text.split()) for document in DOCUMENTS[scope]}
    long_ones = [document for document in DOCUMENTS[scope] if words[document.id] > 250]

    assert all(60 <= count <= 900 for count in words.values()), words
    assert 1 <= len(long_ones) <= 5
    assert all(re.search(r"^## ", document.text, re.MULTILINE) for document in long_ones)


@every_scope
def test_titles_and_texts_are_not_repeated(scope):
    """A copied document would be unchanged noise, and judged nowhere."""
    assert max(Counter(document.title for document in DOCUMENTS[scope]).values()) == 1
    assert max(Counter(document.text for document in DOCUMENTS[scope]).values()) == 1


@every_scope
def test_metadata_can_be_filtered_on(scope):
    """The filter examples of the documentation use topic, kind and a date that sorts as text."""
    for document in DOCUMENTS[scope]:
        assert set(document.metadata) == {"topic", "kind", "revised"}, document.id
        assert date.fromisoformat(document.metadata["revised"])


def test_question_ids_are_unique():
    """A failing question is named by its id."""
    counts = Counter([*(one.id for one in QUESTIONS), *(one.id for one in UNANSWERABLE)])

    assert max(counts.values()) == 1


@every_question
def test_judgments_name_documents_that_exist(question):
    """A judgment of a document that was renamed counts as a miss for ever."""
    assert question.relevant
    assert set(question.relevant) <= set(BY_REFERENCE)


@every_question
def test_judgments_name_no_other_tenant(question):
    """What belongs to another tenant must never be a right answer."""
    assert {reference.partition("/")[0] for reference in question.relevant} <= {question.tenant, "platform"}


@every_question
def test_each_question_has_a_full_answer(question):
    """Grades are 1 to 3, and only a question with a 3 says what an answer is."""
    assert set(question.relevant.values()) <= {1, 2, 3}
    assert max(question.relevant.values()) == 3


@pytest.mark.parametrize("tenant", demo.TENANTS)
def test_each_tenant_asks_every_kind(tenant):
    """Quality is measured for both tenants, whatever the trade."""
    assert {one.kind for one in QUESTIONS if one.tenant == tenant} == set(get_args(demo.Kind))
    assert sum(one.tenant == tenant for one in UNANSWERABLE) >= 20


def test_both_tenants_ask_the_same_questions_and_get_their_own_answers():
    """Isolation shows when one question has two right answers."""
    texts = Counter(one.text for one in QUESTIONS if one.kind == "same")

    assert len(texts) >= 6
    for text in texts:
        best = {one.tenant: {name for name, grade in one.relevant.items() if grade == 3} for one in asked(text)}
        assert set(best) == set(demo.TENANTS), text
        assert best["acme"].isdisjoint(best["globex"]), text


@pytest.mark.parametrize("kind", ["same", "conflict"])
def test_own_rule_is_graded_above_the_platforms(kind):
    """Where the two contradict each other, the tenant's own rule is the answer."""
    for question in (one for one in QUESTIONS if one.kind == kind):
        own = max(grade for name, grade in question.relevant.items() if name.startswith(question.tenant))
        others = [grade for name, grade in question.relevant.items() if name.startswith("platform/")]
        assert all(own > grade for grade in others), question.id


def test_codes_stand_in_the_judged_documents_and_nowhere_else():
    """Only then is an identifier question decided by the identifier."""
    identifiers = [one for one in QUESTIONS if one.kind == "identifier"]

    assert len(identifiers) >= 12
    for question in identifiers:
        code = re.search(r"[\w-]*\d[\w-]*", question.text)
        assert code, question.id
        pattern = re.compile(rf"(?<![\w-]){re.escape(code[0])}(?![\w-])")
        holders = {
            f"{scope}/{document.id}"
            for scope in ("platform", question.tenant)
            for document in DOCUMENTS[scope]
            if pattern.search(f"{document.title}\n{document.text}")
        }
        assert holders == set(question.relevant), question.id


def test_most_paraphrases_share_no_term_with_their_answer():
    """What keyword search cannot find shows what the vectors are for."""
    disjoint = [
        question
        for question in QUESTIONS
        if question.kind == "paraphrase"
        and all(
            content_terms(question.text).isdisjoint(
                content_terms(f"{BY_REFERENCE[name].title}\n{BY_REFERENCE[name].text}")
            )
            for name, grade in question.relevant.items()
            if grade == 3
        )
    ]

    assert len(disjoint) >= 15


def test_questions_are_not_sentences_of_the_documents():
    """A question copied from its answer measures nothing: no six words in a row may be the same."""
    texts = [
        " ".join(re.findall(r"\w+", document.text.lower()))
        for documents in DOCUMENTS.values()
        for document in documents
    ]
    for question in QUESTIONS:
        words = re.findall(r"\w+", question.text.lower())
        runs = [" ".join(words[start : start + 6]) for start in range(len(words) - 5)]
        assert not [run for run in runs if any(run in text for text in texts)], question.id


def test_grep_files_are_small_plain_text():
    """The keyword tier reads them on every fallback of the demo."""
    assert 6 <= len(GREP_FILES) <= 10
    assert all(name.endswith(".txt") and len(text) < 4_000 for name, text in GREP_FILES.items())


@pytest.mark.parametrize("tenant", demo.TENANTS)
def test_grep_files_name_no_tenant(tenant):
    """Whatever stands in that folder is shown to every caller."""
    assert not [name for name, text in GREP_FILES.items() if tenant in text.lower()]


def test_grep_question_stands_in_one_grep_file_only():
    """The demo expects exactly this file when the embedder is cut off."""
    words = content_terms(demo.GREP_QUESTION)

    assert [name for name, text in GREP_FILES.items() if words <= content_terms(text)] == ["mail-relay.txt"]
    assert not [one.id for some in DOCUMENTS.values() for one in some if words <= content_terms(one.text)]


def test_nothing_question_has_no_word_anywhere():
    """The demo expects an empty answer from every tier, as both tenants."""
    words = content_terms(demo.NOTHING_QUESTION)
    texts = [*GREP_FILES.values(), *(f"{one.title}\n{one.text}" for some in DOCUMENTS.values() for one in some)]

    assert {one.tenant for one in UNANSWERABLE if one.text == demo.NOTHING_QUESTION} == set(demo.TENANTS)
    assert not [words & content_terms(text) for text in texts if words & content_terms(text)]


def test_same_question_is_asked_by_both_tenants():
    """The demo asks it as both and shows two different answers."""
    assert {(one.tenant, one.kind) for one in asked(demo.SAME_QUESTION)} == {("acme", "same"), ("globex", "same")}


def test_tenant_question_is_answered_by_the_tenant_alone():
    """The demo shows a hit with scope `tenant`."""
    assert [set(one.relevant) for one in asked(demo.TENANT_QUESTION)] == [{"acme/acme-kp40-service"}]


@pytest.mark.parametrize("text", [demo.PLATFORM_QUESTION, demo.MEMO_QUESTION], ids=["platform", "memo"])
def test_platform_and_memo_questions_are_answered_by_the_platform(text):
    """The demo shows a hit with scope `platform`, and stores a memo about it."""
    assert asked(text)
    assert all(one.relevant[name] == 3 for one in asked(text) for name in one.relevant if name.startswith("platform/"))


def test_secret_document_belongs_to_acme_and_answers_its_question():
    """The demo asks for it as globex too, and must not get it."""
    assert demo.SECRET_DOCUMENT in {document.id for document in DOCUMENTS["acme"]}
    assert [(one.tenant, set(one.relevant)) for one in asked(demo.SECRET_QUESTION)] == [
        ("acme", {f"acme/{demo.SECRET_DOCUMENT}"})
    ]


def test_paths_name_what_the_loaders_read():
    """`groundplane index` is handed the path, the tests use the loader."""
    assert all((demo.corpus_path(scope) / "corpus.jsonl").is_file() for scope in demo.SCOPES)
    assert (demo.grep_path() / "mail-relay.txt").is_file()
