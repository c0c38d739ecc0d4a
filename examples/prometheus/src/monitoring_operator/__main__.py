"""Entry point of the operator: ``python -m monitoring_operator``."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the operator."""
    # As PID 1 of a container, Python ignores SIGTERM until a handler is installed. The imports below take a second.
    signal.signal(signal.SIGTERM, _end)
    from monitoring_operator.main import app

    app(prog_name="monitoring-operator")


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
