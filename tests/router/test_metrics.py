"""Metrics: names of the design, all label values from the start, and counts that follow what happened."""

from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from groundplane_router.metrics import RequestOutcome

NAMES = {
    "grounding_requests", "grounding_request_duration_seconds", "grounding_stage_duration_seconds", "grounding_unavailable",
    "grounding_memo", "grounding_semantic_active", "grounding_semantic_probe_failures", "grounding_embedder_info",
    "grounding_shard_up", "grounding_shard_declared", "grounding_dropped_documents", "grounding_build_info",
    "grounding_requests_in_flight", "grounding_request_body_bytes", "grounding_token_checks", "grounding_token_check_duration_seconds",
    "grounding_directory_age_seconds", "grounding_directory_faults",
}  # fmt: skip


async def scrape(running):
    answer = await running.http.get("/metrics")
    assert answer.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


async def value(running, name, **labels):
    for family in (await scrape(running)).values():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


async def test_the_names_are_those_that_are_declared(installation):
    """Dashboards and alerts are written against them."""
    assert set(await scrape(installation)) == NAMES


async def test_every_label_value_is_there_before_anything_happened(installation):
    """`rate` and `absent` see a zero, not a gap."""
    families = await scrape(installation)
    requests = {(one.labels["tier"], one.labels["outcome"]) for one in families["grounding_requests"].samples}
    scopes = {one.labels["scope"] for one in families["grounding_shard_up"].samples}
    stages = {one.labels["stage"] for one in families["grounding_stage_duration_seconds"].samples}

    outcomes = get_args(RequestOutcome)
    assert requests == {(tier, outcome) for tier in ("memo", "hybrid", "grep", "none") for outcome in outcomes}
    assert scopes == {"tenant", "platform"}
    assert stages == {"embed", "search", "merge", "grep", "memo"}


async def test_no_label_names_a_tenant(installation):
    """A tenant's id is customer data on a shared Prometheus."""
    allowed = {"tier", "outcome", "stage", "reason", "result", "model", "dim", "format", "scope", "version", "le"}
    labels = {name for family in (await scrape(installation)).values() for one in family.samples for name in one.labels}

    assert labels <= allowed


async def test_a_question_is_counted_by_tier_and_outcome(installation):
    """The one number of a dashboard's first panel."""
    await installation.index(a="pumps and valves")
    await installation.evidence("pumps and valves")
    await installation.ground("quagga whispers")
    await installation.http.post("/v1/evidence", json={"query": "x"})
    await installation.post("/v1/evidence", {"query": ""})
    await installation.shards["acme"].stop()
    await installation.evidence("pumps and valves")
    await installation.ground("pumps and valves")

    counted = {
        (tier, outcome): await value(installation, "grounding_requests_total", tier=tier, outcome=outcome)
        for tier, outcome in [
            ("hybrid", "hits"),
            ("none", "empty"),
            ("none", "denied"),
            ("none", "invalid"),
            ("none", "unavailable"),
        ]
    }
    assert counted == {
        ("hybrid", "hits"): 1,
        ("none", "empty"): 1,
        ("none", "denied"): 1,
        ("none", "invalid"): 1,
        ("none", "unavailable"): 2,
    }
    assert await value(installation, "grounding_unavailable_total", reason="search_failed") == 2


@pytest.mark.parametrize(("name", "scope"), [("acme", "tenant"), ("platform", "platform")])
async def test_a_shard_that_is_down_is_counted_once_per_scope(installation, name, scope):
    """The alert compares this with how many are declared."""
    await installation.evidence("x")
    await installation.shards[name].stop()
    await installation.evidence("x")

    declared = await value(installation, "grounding_shard_declared", scope=scope)
    assert await value(installation, "grounding_shard_up", scope=scope) <= declared - 1


async def test_memo_results_are_counted(installation):
    """Hit rate is what memos are for."""
    await installation.http.put("/v1/memos/n/f", json={"response": 1}, headers=installation.headers())
    await installation.ground("x", name="n", fingerprint="f")
    await installation.ground("x", name="n", fingerprint="other")

    assert await value(installation, "grounding_memo_total", result="hit") == 1
    assert await value(installation, "grounding_memo_total", result="miss") == 1


async def test_semantic_grounding_is_reported(installation):
    """Active, then not: the alert's only source."""
    await installation.until(installation.is_ready)
    assert await value(installation, "grounding_semantic_active") == 1
    installation.embedder.dimension = 128
    await installation.evidence("x")

    assert await value(installation, "grounding_semantic_active") == 0
    assert await value(installation, "grounding_semantic_probe_failures_total", reason="dimension_mismatch") == 1


async def test_what_was_not_indexed_is_counted(installation):
    """A document that silently never arrives is found by this."""
    await installation.index(empty="", zero="zerovector")

    assert await value(installation, "grounding_dropped_documents_total", reason="empty_text") == 1
    assert await value(installation, "grounding_dropped_documents_total", reason="zero_vector") == 1


async def test_embedder_and_build_are_described(installation):
    """Which model answers, and which router asks."""
    assert await value(installation, "grounding_embedder_info", model="words", dim="256", format="words") == 1
    assert await value(installation, "grounding_build_info") == 1
