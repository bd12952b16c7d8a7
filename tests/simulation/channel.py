"""The way between processes and the store: where requests and answers meet their faults, and the model sees what came of it."""

from typing import TYPE_CHECKING

from groundplane_shard.log import operations as ops
from tests.simulation.faults import KINDS, damaged
from tests.simulation.model import require
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

ANSWER_LOST = "(answer lost) "
LATE = "late "
CHANGES_BY_KIND = ("write", "upload")


class Channel:
    """All requests of all processes."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def ask(self, operation: ops.Operation, process: Process) -> ops.Result:
        """Answer a store operation as this world does."""
        world, kind = self.world, KINDS[type(operation)]
        world.store_operations += 1
        if process.cut_off_until > world.step_number or world.outage_until > world.step_number:
            if kind in CHANGES_BY_KIND and world.rng.random() < 0.5:
                self.perform(operation, process, ANSWER_LOST)
            return ops.Unknown("cut off")
        draw = world.rng.random()
        if draw < world.rates.outage + world.rates.store_outage:
            return self._begin_outage(process, is_whole=draw < world.rates.store_outage)
        fate = world.rates.fate(kind, world.rng.random())
        if fate is None:
            return self.perform(operation, process)
        world.fault(process, fate)
        if kind in CHANGES_BY_KIND:
            return self._change_with_fault(operation, process, fate)
        return self._read_with_fault(operation, process, fate)

    def _begin_outage(self, process: Process, *, is_whole: bool) -> ops.Result:
        world = self.world
        until = world.step_number + world.rng.randrange(30, 200)
        if is_whole:
            world.outage_until = until
        else:
            process.cut_off_until = until
        world.fault(process, "store outage" if is_whole else "process cut off")
        return ops.Unknown("cut off")

    def _change_with_fault(self, operation: ops.Operation, process: Process, fate: str) -> ops.Result:
        world = self.world
        match fate:
            case "refused":
                return ops.Refused("503")
            case "conflict 409" if not isinstance(operation, ops.Delete):
                return ops.Conflict()
            case "request lost" | "conflict 409":
                return ops.Unknown("lost")
            case "answer lost":
                self.perform(operation, process, ANSWER_LOST)
                return ops.Unknown("lost")
            case "late" | "repeated late":
                world.late.append((operation, process))
                if isinstance(operation, ops.Delete):
                    world.faults["delete late"] += 1
                return ops.Unknown("late") if fate == "late" else self.perform(operation, process)
        answer = self.perform(operation, process)  # upload damaged
        if isinstance(operation, ops.Upload) and isinstance(answer, ops.Stored):
            world.store.put(operation.key, damaged(world.local_files[operation.file.source], world.rng))
        return answer

    def _read_with_fault(self, operation: ops.Operation, process: Process, fate: str) -> ops.Result:
        world = self.world
        answer = self.perform(operation, process, f"({fate}) ")
        match answer, fate:
            case _, "no answer":
                return ops.Unknown("lost")
            case ops.Found(data, etag), "answer damaged":
                return ops.Found(damaged(data, world.rng), etag)
            case ops.Found(), "answer of another object" if isinstance(operation, ops.Get):
                return world.store.get(self._other_key(operation.key))
            case _, "answer out of date" if isinstance(operation, ops.Get) and operation.key in world.store.before:
                return world.store.found(world.store.before[operation.key])
            case ops.Listed(keys), "listing unordered":
                return ops.Listed((*keys[1:], *keys[:1]) if len(keys) > 1 else ("elsewhere",))
            case ops.Listed(keys), "listing incomplete":
                return ops.Listed(tuple(key for key in keys if world.rng.random() < 0.5))
            case ops.Listed(keys), "listing in pages" if len(keys) > 2:
                return ops.Listed(keys[: world.rng.randrange(1, len(keys))], more=True)
        return answer

    def _other_key(self, key: str) -> str:
        """Return a key that exists: the one of the same name in the other incarnation, or a neighbour."""
        world = self.world
        for corpus in world.corpora:
            other = corpus.layout.prefix + key.split("/", 2)[2]
            if other != key and other in world.store.objects:
                return other
        return world.store.keys[int(world.rng.random() * len(world.store.keys))]

    def perform(self, operation: ops.Operation, process: Process, how: str = "") -> ops.Result:
        """Answer a store operation as a store without faults does."""
        world = self.world
        result = self._ask_store(operation, process, how)
        if world._on_trace is not None:
            world.trace(f"{process.name} {how}{_describe(operation)} -> {_describe(result)}")
        return result

    def _ask_store(self, operation: ops.Operation, process: Process, how: str) -> ops.Result:
        world = self.world
        match operation:
            case ops.Get():
                return self._get(operation, process, is_told=not how)
            case ops.Create(key, data):
                return self._create(key, data, process)
            case ops.Replace():
                return self._replace(operation, process, how)
            case ops.List(prefix, start_after):
                require(process.may_read(prefix), "I9 a process reads its own prefix only", process.name, prefix)
                return ops.Listed(world.store.list_keys(prefix, start_after))
            case ops.Delete(key):
                self._check_may_change(process, key)
                process.corpus.model.deleted(key)
                world.store.remove(key)
                return ops.Deleted()
            case ops.Upload(key, file):
                return self._create(key, world.local_files[file.source], process)
            case ops.Verify():
                return world.store.verify(operation)
        raise TypeError(operation)

    def _get(self, operation: ops.Get, process: Process, *, is_told: bool) -> ops.Result:
        key, corpus = operation.key, process.corpus
        require(process.may_read(key), "I9 a process reads its own prefix only", process.name, key)
        answer = self.world.store.get(key)
        if is_told and key == corpus.layout.manifest and isinstance(answer, ops.Found):
            process.seen_counter = max(process.seen_counter, corpus.model.versions.get(answer.data, 0))
        return answer

    def _replace(self, operation: ops.Replace, process: Process, how: str) -> ops.Result:
        key, data, model = operation.key, operation.data, process.corpus.model
        if not self.world.store.can_replace(key, operation.etag):
            return ops.PreconditionFailed()
        self._check_may_change(process, key)
        model.manifest_changed(data, 0 if how == LATE else process.seen_counter)
        if not how:
            process.seen_counter = max(process.seen_counter, model.versions[data])
        return self.world.store.put(key, data)

    def _create(self, key: str, data: bytes, process: Process) -> ops.Result:
        world = self.world
        if key in world.store.objects:
            return ops.PreconditionFailed()
        self._check_may_change(process, key)
        layout, model = process.corpus.layout, process.corpus.model
        if key.startswith(layout.log):
            if not model.created(key, data):
                world.count("stray record")
        elif key == layout.manifest:
            model.manifest_changed(data, 0)
        return world.store.put(key, data)

    def _check_may_change(self, process: Process, key: str) -> None:
        is_own = process.may_change and key.startswith(process.corpus.layout.prefix)
        require(is_own, "I9 nothing changes a prefix that is not its own", process.name, key)


def _describe(message: ops.Operation | ops.Result) -> str:
    match message:
        case ops.Get(key) | ops.Delete(key) | ops.Upload(key) | ops.Verify(key):
            where = _short(key)
        case ops.Create(key, data) | ops.Replace(key, data):
            where = f"{_short(key)} {data[-8:].hex()}"
        case ops.List(prefix, start_after):
            where = f"{_short(prefix)} after {_short(start_after)}"
        case ops.Found(_, etag) | ops.Stored(etag):
            where = etag[:8]
        case ops.Listed(keys):
            where = f"{len(keys)} keys"
        case _:
            where = ""
    return f"{type(message).__name__} {where}".strip()


def _short(key: str) -> str:
    """Return a key without what all have in common: the incarnation's last digit, then the name in its prefix."""
    corpus_key, _, rest = key.partition("/")
    incarnation, _, name = rest.partition("/")
    return f"{incarnation[-1:]}/{name.replace('0' * 14, '')}" if corpus_key else ""
