"""Everyone in a cluster can prove who they are, to everyone else in it."""

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from e2e.cluster.certificates import Authority, Identity

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
KUBELET = Identity(
    file="kubelet",
    user="system:node:node1",
    groups=("system:nodes",),
    dns_names=("node1",),
    addresses=("10.244.0.1",),
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Give an authority that writes to the test's folder."""
    return Authority(tmp_path, NOW)


def certificate(path: Path) -> x509.Certificate:
    """Return the certificate of a file."""
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_is_vouched_for_by_the_authority(authority: Authority, tmp_path: Path):
    """The API server trusts the authority and nobody else."""
    authority.issue(KUBELET)

    certificate(tmp_path / "kubelet.crt").verify_directly_issued_by(certificate(tmp_path / "ca.crt"))


def test_the_subject_is_user_and_groups(authority: Authority, tmp_path: Path):
    """Kubernetes reads the user from the common name and the groups from the organisations."""
    authority.issue(KUBELET)

    subject = certificate(tmp_path / "kubelet.crt").subject
    assert subject.rfc4514_string() == "CN=system:node:node1,O=system:nodes"


def test_servers_are_known_by_their_names(authority: Authority, tmp_path: Path):
    """`kubectl exec` reaches the kubelet by its address."""
    authority.issue(KUBELET)

    names = certificate(tmp_path / "kubelet.crt").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node1"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.244.0.1"]


def test_clocks_may_differ_a_little(authority: Authority, tmp_path: Path):
    """A virtual machine's clock may jump back between two steps."""
    issued = certificate(tmp_path / "ca.crt")

    assert issued.not_valid_before_utc < NOW < issued.not_valid_after_utc


def test_a_key_pair_belongs_together(authority: Authority, tmp_path: Path):
    """The API server checks service account tokens with the one half that it signs with the other."""
    authority.key_pair("tokens")

    private = load_pem_private_key((tmp_path / "tokens.key").read_bytes(), None)
    assert private.public_key() == load_pem_public_key((tmp_path / "tokens.pub").read_bytes())
