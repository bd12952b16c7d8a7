"""Faults planted into single steps of the protocol, to show that the simulation finds what it is there to find.

Not planted, because they change nothing that can be seen:

- an epoch that falls along the log is accepted when a record is read: the digest chain and the barriers, which are never
  deleted, leave no place where such a record could stand. (That the epoch in MANIFEST falls is planted.)
- the second reading of the log between raising the epoch and the barrier is left out: placing the barrier applies
  whatever took its place, one by one.
- a writer goes on after an unknown outcome: its next create meets what became of the one before, if anything did.
"""

from tests.simulation.planted_snapshots import SNAPSHOTS
from tests.simulation.planted_takeovers import TAKEOVERS
from tests.simulation.planted_writes import WRITES
from tests.simulation.planting import Plant

PLANTED: dict[str, Plant] = {**WRITES, **TAKEOVERS, **SNAPSHOTS}
