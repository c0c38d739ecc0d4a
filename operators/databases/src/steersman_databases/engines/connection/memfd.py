"""In-memory files for libraries that read certificates and keys only from files."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def memory_file(content: bytes) -> Generator[str]:
    """Yield a path to the content.

    Only this process can open it, and it ends with the context.
    """
    descriptor = os.memfd_create("steersman", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
