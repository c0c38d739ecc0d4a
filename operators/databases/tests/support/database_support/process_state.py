"""State of this process that programs change at their start."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def preserved_process_state() -> Generator[None]:
    """Restore the umask and signal handlers after a program has run in this process."""
    mask = os.umask(0o022)
    os.umask(mask)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        os.umask(mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
