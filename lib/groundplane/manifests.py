"""From YAML files to the corpora of an installation: what `kubectl apply` takes, `groundplane up` takes.

Only the safe constructors of YAML, no aliases (a few lines of them can stand for gigabytes), no key twice in
one mapping, and timestamps stay text, as Kubernetes reads them. Every fault begins with `file:line`.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from groundplane.api.parse import parse_manifest
from groundplane.api.v1alpha1 import API_VERSION, GROUP, KIND, TenantCorpus
from groundplane.errors import InvalidInput

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 1_000
SUFFIXES = (".yaml", ".yml", ".json")

_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


class FoundCorpus(msgspec.Struct, frozen=True):
    """A corpus and where its manifest stands, as `file:line`."""

    corpus: TenantCorpus
    place: str


class Manifests(msgspec.Struct, frozen=True):
    """The corpora of an installation, ordered by corpus key, and what was left out."""

    corpora: tuple[FoundCorpus, ...]
    warnings: tuple[str, ...]


def load_manifests(paths: Sequence[Path]) -> Manifests:
    """Return the resources of YAML files and of directories (not below them).

    Other kinds are left out with a warning. Raises InvalidInput with every fault found, one a line.
    """
    found: list[FoundCorpus] = []
    warnings: list[str] = []
    faults: list[str] = []
    for path in _files(paths):
        try:
            corpora, ignored = read_manifests(_read(path), str(path))
        except InvalidInput as error:
            faults.append(error.message)
            continue
        found += corpora
        warnings += ignored
    faults += _conflicts(found)
    if not faults and not found:
        faults.append(f"no {KIND} in {', '.join(map(str, paths))}: expected at least one")
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_manifest")
    return Manifests(tuple(sorted(found, key=lambda each: each.corpus.spec.corpus_key)), tuple(warnings))


def read_manifests(text: str, name: str) -> tuple[list[FoundCorpus], list[str]]:
    """Return the corpora of one multi-document YAML text, and a warning for each document left out.

    `name` is the file's. Raises InvalidInput with every fault of it, one a line.
    """
    found: list[FoundCorpus] = []
    warnings: list[str] = []
    faults: list[str] = []
    for node, manifest in _documents(text, name):
        place = f"{name}:{node.start_mark.line + 1}"
        warning = _reason_to_ignore(manifest)
        if warning is not None:
            warnings.append(f"{place}: {warning}")
            continue
        try:
            found.append(FoundCorpus(parse_manifest(manifest), place))
        except InvalidInput as error:
            faults += [f"{name}:{_line_of(node, fault)}: {fault}" for fault in error.message.split("\n")]
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_manifest")
    return found, warnings


def _reason_to_ignore(manifest: object) -> str | None:
    if not isinstance(manifest, dict):
        return f"document is no mapping, ignored: expected a {KIND}"
    kind, version = manifest.get("kind"), str(manifest.get("apiVersion", ""))
    if kind == KIND and (version == API_VERSION or version.startswith(f"{GROUP}/") or not version):
        return None
    return f"kind {str(kind)[:64]!r} of {version[:64]!r} ignored: only {KIND} of {API_VERSION} is read"


def _conflicts(found: Iterable[FoundCorpus]) -> Iterator[str]:
    """Yield what two manifests claim at once, in the order of their places."""
    holders: dict[str, FoundCorpus] = {}
    for each in found:
        spec = each.corpus.spec
        owner = f"tenant {spec.tenant!r}" if spec.tenant is not None else "the platform corpus"
        claims = [f"the name {each.corpus.full_name}", owner]
        claims += [f"subject {grant.namespace}/{grant.service_account}" for grant in spec.subjects]
        for claim in claims:
            holder = holders.setdefault(claim, each)
            if holder is not each:
                yield (
                    f"{each.place}: {each.corpus.full_name} claims {claim}, which {holder.corpus.full_name} "
                    f"({holder.place}) has: remove one of the claims"
                )


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(child for child in path.iterdir() if child.suffix in SUFFIXES and child.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise InvalidInput(f"{path}: no such file or directory: give manifests or directories of them")
    if len(files) > MAX_FILES:
        raise InvalidInput(f"{len(files)} manifest files: expected at most {MAX_FILES}")
    return list(dict.fromkeys(files))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InvalidInput(f"{path}: is larger than {MAX_FILE_BYTES} bytes: split it")
        return content.decode()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8 text: save it as UTF-8") from error


class _Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases, timestamps and repeated keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it unannotated
            raise yaml.MarkedYAMLError(problem="an alias is used: write the value out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or name in seen:
                fault = (
                    "key is no scalar: write a name" if name is None else f"key {name[:64]!r} stands twice: keep one"
                )
                raise yaml.MarkedYAMLError(problem=fault, problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _documents(text: str, name: str) -> Iterator[tuple[yaml.Node, object]]:
    """Yield root node and value of each document that is not empty. Raises InvalidInput for what is no YAML."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None and node.tag != "tag:yaml.org,2002:null":
                yield node, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInput(f"{name}:{line}: {error.problem or 'is no YAML'}", code="invalid_manifest") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).split("\n")[0][:256]
        raise InvalidInput(f"{name}: is no YAML: {reason}", code="invalid_manifest") from error
    except RecursionError as error:
        raise InvalidInput(f"{name}: is nested too deeply: flatten it", code="invalid_manifest") from error


def _line_of(root: yaml.Node, fault: str) -> int:
    """Return the line of the deepest node on the path that `fault` begins with, counted from 1."""
    node, line = root, root.start_mark.line
    for step in fault.partition(": ")[0].replace("[", ".[").split("."):
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, value) for key, value in node.value}
            if step not in pairs:
                break
            key, node = pairs[step]
            line = key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and step.strip("[]").isdigit():
            node = node.value[int(step.strip("[]"))]
            line = node.start_mark.line
    return line + 1
