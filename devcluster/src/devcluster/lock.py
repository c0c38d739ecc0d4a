"""One at a time, across every process and checkout of the machine."""

import fcntl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock file `path` (flock(2)) while the block runs; the kernel releases it if the process dies.

    `waiting` is called once if somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
