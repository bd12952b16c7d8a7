"""The demo fails when the system is wrong: a transcript that is always green shows nothing."""

import io
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from groundplane.cli.demo_checks import (
    Clients,
    StepResult,
    cut_off,
    isolation,
    memo,
    nothing,
    own_corpus,
    platform_corpus,
    same_question,
)
from groundplane.cli.demo_transcript import print_step, print_summary
from groundplane.client import AsyncClient
from groundplane.demo import SECRET_DOCUMENT
from groundplane.wire.names import Scope
from groundplane.wire.public import DocumentAnswer, WriteAnswer
from tests.fakes.answers import evidence_answer, ground_answer, hit

LEAK = hit(doc_id=SECRET_DOCUMENT)


def leaky(request: httpx.Request) -> httpx.Response:
    """Answer everybody with acme's secret document, whatever is asked."""
    answers: dict[str, Any] = {
        "/v1/ground": ground_answer(hits=[LEAK]),
        "/v1/evidence": evidence_answer(hits=[LEAK]),
        f"/v1/documents/{SECRET_DOCUMENT}": DocumentAnswer(
            id=SECRET_DOCUMENT, text="x", title=None, uri=None, metadata=msgspec.Raw(b"{}"), chunks=1, sequence=1
        ),
    }
    answer = answers.get(request.url.path, WriteAnswer(position="p"))
    return httpx.Response(200, content=msgspec.json.encode(answer))


def clients(handler: Callable[[httpx.Request], httpx.Response]) -> Clients:
    def client() -> AsyncClient:
        return AsyncClient("http://router", "token", transport=httpx.MockTransport(handler))

    return Clients(acme=client(), globex=client(), acme_indexer=client(), acme_cut_off=client())


def unmet(result: StepResult) -> list[str]:
    return [each.text for each in result.expectations if not each.is_met]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(own_corpus, [], id="own"),
        pytest.param(platform_corpus, ["the first hit is the platform's"], id="platform"),
        pytest.param(
            same_question,
            ["globex is answered from its own document", "neither sees a document of the other"],
            id="same-question",
        ),
        pytest.param(isolation, ["globex does not find it", "globex does not get it by id"], id="isolation"),
        pytest.param(
            memo,
            ["the memo tier answers with what was stored", "the embedder was not asked"],
            id="memo",
        ),
        pytest.param(nothing, ["the answer is nothing, from no tier", "nothing is cited"], id="nothing"),
        pytest.param(
            cut_off,
            ["evidence is 503", "with its reason", "ground falls through to keyword search", "and is marked degraded"],
            id="cut-off",
        ),
    ],
)
async def test_a_router_that_shows_one_tenant_to_all_fails_the_steps(step, expected):
    """Each expectation notices the fault that it is there for, and only that."""
    assert unmet(await step(clients(leaky))) == expected


async def test_an_own_hit_is_not_one_of_another_scope():
    """The first step would otherwise pass with the platform's documents."""

    def platform_only(_: httpx.Request) -> httpx.Response:
        answer = ground_answer(hits=[hit(scope=Scope.PLATFORM)])
        return httpx.Response(200, content=msgspec.json.encode(answer))

    assert unmet(await own_corpus(clients(platform_only))) == ["the first hit is the tenant's own"]


async def test_the_summary_names_what_failed_and_exits_with_1():
    """`make demo` is also a check for continuous integration."""
    console = Console(record=True, width=120, file=io.StringIO())
    result = await nothing(clients(leaky))
    print_step(console, result, 6)

    assert print_summary(console, [result]) == 1
    shown = console.export_text()
    assert "failed: A question about which the corpora have nothing: nothing is cited" in shown
    assert "0 of 2 expectations met in 1 steps" in shown
