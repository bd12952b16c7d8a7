"""Settings of the operator are read once, and every fault is named at once."""

import pytest

from groundplane.errors import InvalidInput
from groundplane.process.settings import settings_table
from groundplane_operator.settings import OperatorSettings, read_operator_settings

REQUIRED = {"GROUNDPLANE_NAMESPACE": "groundplane-system", "GROUNDPLANE_SHARD_IMAGE": "groundplane:1"}


def read(**more):
    return read_operator_settings(REQUIRED | more)


def test_every_fault_is_reported_at_once():
    """Whoever installs it must not fix one and meet the next."""
    with pytest.raises(InvalidInput) as fault:
        read_operator_settings(
            {
                "GROUNDPLANE_PORT": "70000",
                "GROUNDPLANE_ROUTER_PEERS": "everybody",
                "GROUNDPLANE_DNS_PEERS": '{"a": 1}',
                "GROUNDPLANE_DEFAULT_OBJECT_STORE": "https://bucket",
                "GROUNDPLANE_MAX_CONCURRENT_ROLLOUTS": "0",
            }
        )

    for name in (
        *REQUIRED,
        "GROUNDPLANE_PORT",
        "GROUNDPLANE_ROUTER_PEERS",
        "GROUNDPLANE_DNS_PEERS",
        "GROUNDPLANE_DEFAULT_OBJECT_STORE=https://bucket",
        "GROUNDPLANE_DEFAULT_CREDENTIALS_SECRET",
        "GROUNDPLANE_MAX_CONCURRENT_ROLLOUTS",
    ):
        assert name in fault.value.message


@pytest.mark.parametrize("name", ["GROUNDPLANE_DEFAULT_OBJECT_STORE", "GROUNDPLANE_DEFAULT_CREDENTIALS_SECRET"])
def test_a_default_bucket_comes_with_its_keys(name):
    """One without the other is a corpus that never starts."""
    with pytest.raises(InvalidInput, match="expected both"):
        read(**{name: "s3://bucket"})


def test_peers_that_are_not_named_are_those_of_the_operators_namespace():
    """A plain installation lets its own router and operator through, and nobody who reads metrics."""
    peers = read().peers
    labels = [
        each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in peers.router + peers.operator
    ]

    assert labels == ["router", "operator"]
    assert (peers.metrics, peers.dns, peers.object_store) == ((), (), ())


def test_peers_that_are_named_replace_the_default():
    """A router may live elsewhere."""
    assert read(GROUNDPLANE_ROUTER_PEERS='[{"podSelector": {}}]').peers.router == ({"podSelector": {}},)


def test_lists_of_names_are_separated_by_commas():
    """As in every other setting of this kind."""
    settings = read(GROUNDPLANE_WATCH_NAMESPACES="a, b", GROUNDPLANE_SHARD_IMAGE_PULL_SECRETS="x")

    assert (settings.namespaces, settings.pull_secrets) == (("a", "b"), ("x",))


def test_every_variable_has_the_products_prefix():
    """Nothing else may change what the operator does."""
    assert all(row.variable.startswith("GROUNDPLANE_") for row in settings_table(OperatorSettings))
