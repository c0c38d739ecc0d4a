"""Randomness of the operating system comes from a seed, so that passwords and UUIDs repeat as well."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def seeded_randomness(seed: int) -> Generator[None]:
    """``os.urandom``, and with it ``secrets``, ``uuid.uuid4`` and ``random.SystemRandom``, repeat from ``seed``.

    In the whole process: not for what runs beside other threads that need real secrets.
    """
    rng = random.Random(seed)  # noqa: S311
    # Where the random module keeps its own reference, which secrets uses.
    with mock.patch.object(os, "urandom", rng.randbytes), mock.patch.object(random, "_urandom", rng.randbytes):
        yield
