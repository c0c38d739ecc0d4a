"""The operator's process: ``python -m redis_operator``."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the operator."""
    # As process 1 of a container Python is deaf to SIGTERM until something handles it, and imports take a moment.
    signal.signal(signal.SIGTERM, _end)
    from redis_operator.main import app

    app(prog_name="redis-operator")


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
