"""What the exchanges with shards have shown: whether each answers, and the highest epoch it has answered with."""

from collections.abc import Iterable
from typing import Final

from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import Incarnation, Scope
from groundplane_router.directory import scope_of

SHARD_SCOPES: Final = (Scope.TENANT, Scope.PLATFORM)


class ShardHealth:
    """Keyed by incarnation; nothing of one corpus says anything about another."""

    def __init__(self) -> None:
        self._is_up: dict[Incarnation, bool] = {}
        self._epochs: dict[Incarnation, int] = {}

    def answered(self, corpus: CorpusEntry, epoch: int) -> None:
        """Take note of a good answer."""
        self._is_up[corpus.incarnation] = True
        self._epochs[corpus.incarnation] = max(epoch, self.highest_epoch(corpus))

    def failed(self, corpus: CorpusEntry) -> None:
        """Take note that the shard did not answer, or not as it must."""
        self._is_up[corpus.incarnation] = False

    def highest_epoch(self, corpus: CorpusEntry) -> int:
        """Return the highest epoch seen; 0 before the first answer."""
        return self._epochs.get(corpus.incarnation, 0)

    def keep_only(self, corpora: Iterable[CorpusEntry]) -> None:
        """Forget every incarnation that the directory no longer names."""
        known = {corpus.incarnation for corpus in corpora}
        self._is_up = {one: up for one, up in self._is_up.items() if one in known}
        self._epochs = {one: epoch for one, epoch in self._epochs.items() if one in known}

    def count_up(self, corpora: Iterable[CorpusEntry]) -> dict[Scope, int]:
        """Return how many of `corpora` answered last time they were asked, by scope; both scopes are present."""
        counts = dict.fromkeys(SHARD_SCOPES, 0)
        for corpus in corpora:
            counts[scope_of(corpus)] += self._is_up.get(corpus.incarnation, False)
        return counts
