"""One process life and one incarnation, as the simulation sees them from outside."""

from typing import Any

from groundplane_shard.log import Identity, Layout, Position, Writer
from groundplane_shard.log import operations as ops
from tests.simulation.contents import Contents
from tests.simulation.dialogue import Dialogue
from tests.simulation.model import Model
from tests.simulation.store import SimulatedStore


class Corpus:
    """One incarnation: where it lies, what is true of it, and what happened to it."""

    def __init__(self, number: int, store: SimulatedStore, origin: "Corpus | None" = None) -> None:
        self.layout = Layout("t-simulated", f"00000000-0000-4000-8000-{number:012d}")
        self.owner = f"u{number}"
        self.model: Model = Model(self.layout, store, origin.model if origin else None)
        self.is_accepting_loss = False
        self.disaster = ""
        self.checkpoints: list[tuple[dict[str, bytes], int]] = []  # of the whole prefix, with the log's end


class Process:
    """One process life: its local state, its lanes, and whether it is frozen."""

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        *,
        owner: str | None = None,
        source: Corpus | None = None,
        may_change: bool = True,
    ) -> None:
        self.name = name
        self.corpus = corpus
        self.owner = owner or corpus.owner
        self.source = source  # of the restore that this process is for; None: it serves the corpus
        self.may_change = may_change  # False: it has no business here, so nothing may come of what it asks for
        self._readable = tuple(one.layout.prefix for one in (corpus, source) if one)
        self.contents = Contents()
        self.position = Position()
        self.seen_counter = 0  # highest counter of a MANIFEST that it was told of
        self.is_opening = True  # until its state was built for the first time
        self.is_taking_over = False
        self.is_publishing = False
        self.writer: Writer | None = None
        self.lanes: list[tuple[Dialogue, ops.Operation, Any]] = []  # dialogue, what it waits for, answer already there
        self.frozen_until = 0
        self.cut_off_until = 0  # until this step none of its requests is answered

    @property
    def serves(self) -> bool:
        """Whether this is an ordinary process of its corpus."""
        return self.source is None and self.may_change

    def identity(self) -> Identity:
        """Return who this process says it is."""
        return Identity(layout=self.corpus.layout, owner=self.owner, writer_id=self.name)

    def may_read(self, key: str) -> bool:
        """Return whether this key lies in its own prefix, or in that of the restore's source."""
        return key.startswith(self._readable)
