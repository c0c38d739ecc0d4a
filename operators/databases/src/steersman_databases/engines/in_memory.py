"""Files that exist only in memory, for libraries that read certificates and keys from files alone."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def in_memory(content: bytes) -> Generator[str]:
    """A path to the content, which nobody else can open and which is gone with us."""
    descriptor = os.memfd_create("steersman", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
