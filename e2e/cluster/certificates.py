"""The cluster's certificate authority and who it vouches for. Elliptic curve P-256, valid for thirty days."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster.state import replace_file

VALID = dt.timedelta(days=30)
CLOCK_DIFFERENCE = dt.timedelta(hours=1)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who gets a certificate: a user and groups of the API server, and the names it serves under."""

    file: str
    user: str
    groups: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class Authority:
    """A certificate authority with its key in memory; whatever it issues is written below one folder."""

    def __init__(self, directory: Path, now: dt.datetime) -> None:
        """Make a new authority and write `ca.crt`; its key is written nowhere: nothing is issued later."""
        self._directory = directory
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("groundplane-test-ca", ())
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._write("ca.crt", builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, identity: Identity) -> None:
        """Write `<file>.key` and `<file>.crt`, good for clients and, under the identity's names, for servers."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(_name(identity.user, identity.groups), key.public_key())
        builder = builder.add_extension(usages, critical=False)
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in identity.dns_names]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in identity.addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self._write(f"{identity.file}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        self._write(f"{identity.file}.key", _private_pem(key))

    def key_pair(self, file: str) -> None:
        """Write `<file>.key` and `<file>.pub` for signatures that need no certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self._write(f"{file}.key", _private_pem(key))
        self._write(f"{file}.pub", key.public_key().public_bytes(serialization.Encoding.PEM, form))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=self._now - CLOCK_DIFFERENCE,
            not_valid_after=self._now + VALID,
        )

    def _write(self, name: str, content: bytes) -> None:
        replace_file(self._directory / name, content)


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    """Return the subject by which Kubernetes knows a user (common name) and its groups (organisations)."""
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)
