"""The operator's process: ``steersman-databases``, or ``python -m steersman_databases``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """The entry point of the ``steersman-databases`` command."""
    # As process 1 of a container Python is deaf to SIGTERM until something handles it, and the imports take a second.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    from steersman_databases.cli import app

    app(prog_name="steersman-databases")


if __name__ == "__main__":
    main()
