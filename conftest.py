"""Root conftest: loads the plugin of steersman-testing and the case fixtures."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator

import pytest

# The entry point of steersman-testing registers the same plugin; naming it here also serves an old installation.
pytest_plugins = ["steersman_testing.pytest_plugin", "framework_support.case_fixtures"]

# A simulated cluster allocates as much in a moment.
_GC_THRESHOLD = 20_000


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Disable the garbage collector during the collection, which frees nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Record the CPU time of each test as ``cpu_seconds``.

    scripts/check_durations.py reads this junit property.
    """
    started = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", f"{time.process_time() - started:.3f}"))
