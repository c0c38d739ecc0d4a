"""Deterministic replacement of the operating system's randomness."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def seeded_randomness(seed: int) -> Generator[None]:
    """Patch ``os.urandom``, and with it ``secrets``, ``uuid.uuid4`` and ``random.SystemRandom``, to use ``seed``.

    The patch applies to the whole process. Do not use it while other threads need real secrets.
    """
    rng = random.Random(seed)  # noqa: S311
    # The random module has its own reference to urandom, which secrets uses.
    with mock.patch.object(os, "urandom", rng.randbytes), mock.patch.object(random, "_urandom", rng.randbytes):
        yield
