# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Entry point of the operator: ``python -m my_operator``."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the operator."""
    # As PID 1 of a container, Python ignores SIGTERM until a handler is installed. The imports below take a second.
    signal.signal(signal.SIGTERM, _end)
    from my_operator.main import app

    app(prog_name="my-operator")


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
