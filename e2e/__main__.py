"""Entry point of `python -m e2e [pytest arguments]`, which `make e2e` and `make e2e-smoke` call."""

import sys

from e2e.running import main

sys.exit(main(sys.argv[1:]))
