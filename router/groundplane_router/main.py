"""Entry point of the router: `groundplane-router`, or `python -m groundplane_router.main`."""

import os
import random
from collections.abc import Mapping

from groundplane.process.server import run_program

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Serve until SIGTERM. Exits with 2 for settings that cannot be used, 1 if the port cannot be had."""
    for variable in BLAS_VARIABLES:
        os.environ[variable] = "1"  # read by numpy's BLAS when it is first imported, so before `start` imports it
    run_program(start)


def start(environment: Mapping[str, str]) -> None:
    """Serve with the settings of `environment`. Raises InvalidInput for settings that cannot be used."""
    from groundplane.process.clock import SystemClock
    from groundplane.process.logs import Log, configure_logs
    from groundplane.process.server import serve
    from groundplane_router.assembly import build_router
    from groundplane_router.settings import read_router_settings

    settings = read_router_settings(environment)
    configure_logs(settings.log_level)
    Log("router").info(
        "starting", port=settings.port, embedder=settings.embedder_kind, grep=bool(settings.corpus_directory)
    )
    app = build_router(settings, clock=SystemClock(), rng=random.SystemRandom())
    serve(app, host=settings.host, port=settings.port, max_connections=4 * settings.max_requests)


if __name__ == "__main__":
    main()
