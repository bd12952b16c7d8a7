"""What is made once and kept: the keys of an installation and the incarnations of its corpora."""

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from groundplane.errors import InvalidInput
from groundplane.local.layout import DataDirectory, write_private
from groundplane.tokens import SigningKey
from groundplane.wire.names import CorpusKey, Incarnation, parse_incarnation


def prepare_keys(data: DataDirectory) -> None:
    """Make the keys that are missing and publish the public halves. Raises InvalidInput for a file that is no key."""
    caller, router = SigningKey.load_or_create(data.caller_key), SigningKey.load_or_create(data.router_key)
    write_private(data.caller_public_key, caller.public_pem())
    current = data.public_keys / f"router-{router.id}.pem"
    write_private(current, router.public_pem())
    for stale in data.public_keys.glob("router-*.pem"):
        if stale != current:
            stale.unlink()


def prepare_incarnations(data: DataDirectory, keys: Iterable[CorpusKey]) -> Mapping[CorpusKey, Incarnation]:
    """Return the incarnation of each of `keys`, made at random for a corpus that is new here.

    Corpora that are not asked for keep theirs, so that a manifest that comes back finds its data. Raises InvalidInput
    if the file was damaged: a new incarnation would hide what is stored.
    """
    known = _read_incarnations(data)
    wanted = {key: known.get(key) or Incarnation(str(uuid.uuid4())) for key in keys}
    if not wanted.keys() <= known.keys():
        write_private(data.incarnations, msgspec.json.encode({**known, **wanted}, order="sorted"))
    return wanted


def read_incarnation(data: DataDirectory, key: CorpusKey) -> Incarnation:
    """Return the incarnation of a corpus. Raises InvalidInput if this data directory never held it."""
    found = _read_incarnations(data).get(key)
    if found is None:
        raise InvalidInput(
            f"corpus {key} has no incarnation in {data.incarnations}: start groundplane up with it first"
        )
    return found


def switch_incarnation(data: DataDirectory, key: CorpusKey, incarnation: Incarnation) -> None:
    """Make `incarnation` the corpus's one, from the next start on; all or nothing. The data directory must be held."""
    known = _read_incarnations(data)
    write_private(data.incarnations, msgspec.json.encode({**known, key: incarnation}, order="sorted"))


def _read_incarnations(data: DataDirectory) -> dict[CorpusKey, Incarnation]:
    try:
        content = data.incarnations.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        raw = msgspec.json.decode(content, type=dict[str, str])
        return {CorpusKey(key): parse_incarnation(value) for key, value in raw.items()}
    except (msgspec.DecodeError, InvalidInput) as error:
        raise InvalidInput(
            f"{data.incarnations} cannot be read: expected a JSON object of corpus keys and UUIDs; restore it from a "
            "copy, or take the UUIDs from the directory names in store/",
            code="corrupt_incarnations",
        ) from error
