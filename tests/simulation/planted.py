"""Faults planted into single steps of the protocol, to show that the simulation finds what it is there to find.

Not planted, because another rule keeps the harm away, or because the seeds reach it too rarely; tests/shard/log has a test
for each:

- an epoch that falls along the log is accepted when a record is read: the digest chain and the barriers, which are never
  deleted, leave no place where such a record could stand. (That the epoch in MANIFEST falls is planted.)
- the second reading of the log between raising the epoch and the barrier is left out: placing the barrier applies
  whatever took its place, one by one.
- a writer goes on after an unknown outcome: its next create meets what became of the one before, if anything did.
- the digest of the previous record is not compared: epoch, incarnation and sequence leave only the barrier of a take-over
  that slept until its place was collected, read by a follower that slept just before it, while the newest snapshot ends
  with the very next record. Not met in 2,000 seeds.
- a file that is no longer listed is listed again: an own publication that was thought lost must come in between, drop the
  file, and the bytes in it must return. Not met in 2,000 seeds.
"""

from tests.simulation.planted_snapshots import SNAPSHOTS
from tests.simulation.planted_takeovers import TAKEOVERS
from tests.simulation.planted_writes import WRITES
from tests.simulation.planting import Plant

PLANTED: dict[str, Plant] = {**WRITES, **TAKEOVERS, **SNAPSHOTS}
