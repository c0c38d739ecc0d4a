"""The operator's process: ``steersman-databases``, or ``python -m steersman_databases``."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """The entry point of the ``steersman-databases`` command."""
    # As process 1 of a container Python is deaf to SIGTERM until something handles it, and the imports take a second.
    signal.signal(signal.SIGTERM, _exit)
    from steersman_databases.main import app

    app(prog_name="steersman-databases")


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
