"""Text formats of a manifest: names, quantities, durations; each with its pattern, its parser and what it means.

The patterns go into the generated CRD, so they stay within RE2: no look-around, no back references.
Sources: Kubernetes "Object Names and IDs" (RFC 1123 labels and subdomains), `resource.Quantity`, Go `time.ParseDuration`.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from groundplane.errors import InvalidInput

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
BUCKET = r"^[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]$"
OBJECT_PREFIX = r"^[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*$"
HTTP_URL = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[munkMGTPE]|[eE][0-9]{1,2})?$"
DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
ENVIRONMENT_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

MEANINGS: Mapping[str, str] = {
    DNS_LABEL: "a name of lower-case letters, digits and '-', such as acme-agent",
    DNS_SUBDOMAIN: "a name of lower-case letters, digits, '-' and '.', such as acme-agent",
    BUCKET: "a bucket name of 3 to 63 lower-case letters, digits, '-' and '.'",
    OBJECT_PREFIX: "path segments joined by '/', without a leading or trailing one, such as prod/eu",
    HTTP_URL: "an http or https URL without query, such as https://minio.storage.svc:9000",
    QUANTITY: "a quantity such as 500m, 2, 4Gi",
    DURATION: "a duration such as 30s, 10m, 1h30m",
    ENVIRONMENT_NAME: "the name of an environment variable",
    UUID: "a lowercase UUID, as status.incarnation shows it",
}

_SUFFIXES: Mapping[str, int | Fraction] = {
    "": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
_UNIT_SECONDS: Mapping[str, int | Fraction] = {"ms": Fraction(1, 1000), "s": 1, "m": 60, "h": 3600}
_QUANTITY_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(.*)", re.ASCII)
_DURATION_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)


def parse_quantity(text: str | int, field: str) -> Fraction:
    """Return the number that a Kubernetes quantity stands for. Raises InvalidInput that names `field`."""
    text = str(text)
    if not re.fullmatch(QUANTITY, text, re.ASCII) or len(text) > 32:
        raise InvalidInput(f"{field}: quantity {text[:32]!r}: expected {MEANINGS[QUANTITY]}", field=field)
    matched = _QUANTITY_PARTS.fullmatch(text)
    number, suffix = matched.groups() if matched else (text, "")
    if suffix[:1] in {"e", "E"} and suffix[1:].isdigit():
        return Fraction(f"{number}{suffix}")
    return Fraction(number) * _SUFFIXES[suffix]


def parse_size_bytes(text: str | int, field: str) -> int:
    """Return a quantity as whole bytes, at least 1, rounded up as Kubernetes does. Raises InvalidInput."""
    size_bytes = math.ceil(parse_quantity(text, field))
    if not 1 <= size_bytes < 2**63:
        raise InvalidInput(f"{field}: quantity {text!r}: expected from 1 byte to 8Ei", field=field)
    return size_bytes


def parse_duration_seconds(text: str, field: str) -> float:
    """Return a duration such as `1h30m` in seconds. Raises InvalidInput that names `field`."""
    if not re.fullmatch(DURATION, text, re.ASCII) or len(text) > 32:
        raise InvalidInput(f"{field}: duration {text[:32]!r}: expected {MEANINGS[DURATION]}", field=field)
    parts = _DURATION_PARTS.findall(text)
    return float(sum(Fraction(number) * _UNIT_SECONDS[unit] for number, unit in parts))
