"""Object stores, the check that one can be trusted with conditions, and the driver that runs the log protocol on one."""

from groundplane_shard.stores.checked import while_checking
from groundplane_shard.stores.conditions import check_conditions
from groundplane_shard.stores.driver import Effects, download_snapshot, run
from groundplane_shard.stores.local import LocalStore
from groundplane_shard.stores.memory import MemoryStore
from groundplane_shard.stores.progress import Progress
from groundplane_shard.stores.protocol import ObjectStore

__all__ = [
    "Effects",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "Progress",
    "check_conditions",
    "download_snapshot",
    "run",
    "while_checking",
]
