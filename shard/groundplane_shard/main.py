"""Entry point of the shard: settings → object graph → serving.

LanceDB's thread counts and glibc's arenas are read when the libraries are loaded, so they are set here, before any
module that imports them; that is why the imports of the object graph stand inside `start`.
"""

import os
import sys
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from groundplane.process.clock import SystemClock
from groundplane.process.logs import Log, configure_logs
from groundplane.process.server import run_program, serve
from groundplane_shard import failpoints
from groundplane_shard.lean_lancedb import leave_out_catalogue_client
from groundplane_shard.mounted_keys import MountedKeys
from groundplane_shard.settings import read_shard_settings
from groundplane_shard.store_settings import build_store

_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# A search gives the interpreter's lock away at each numpy call and gets it back after at most this long, whatever threads
# do beside it; at 1 ms the p95 of a search during an ingest was three times as long.
_SWITCH_SECONDS = 0.00005


def main() -> None:
    """Run a shard until SIGTERM."""
    run_program(start)


def start(environment: Mapping[str, str]) -> None:
    """Serve the corpus that `environment` names. Raises InvalidInput for faulty settings."""
    settings = read_shard_settings(environment)
    failpoints.arm(environment)
    keys = MountedKeys(Path(settings.keys_directory))
    configure_logs(settings.log_level)
    limit_threads()
    leave_out_catalogue_client()
    from groundplane_shard.assembly import assemble

    with closing(build_store(settings, environment)) as store:
        app = assemble(settings, keys, store, SystemClock(), writer_id=str(uuid.uuid4()))
        names = {"corpus_key": settings.corpus_key, "incarnation": settings.incarnation}
        Log("shard").info("starting", **names, port=settings.port)
        serve(app, host=settings.host, port=settings.port, max_connections=settings.max_connections)


def limit_threads() -> None:
    """Bound the threads of numpy and LanceDB by the CPUs this process may use, before they are loaded."""
    cpus = str(len(os.sched_getaffinity(0)))
    for name, value in {**_THREADS, "LANCE_CPU_THREADS": cpus, "LANCE_IO_THREADS": "4"}.items():
        os.environ.setdefault(name, value)
    sys.setswitchinterval(_SWITCH_SECONDS)


if __name__ == "__main__":
    main()
