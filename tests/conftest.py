"""What holds for all tests."""

from __future__ import annotations

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spares the garbage collector what stays anyway: thousands of tests, which it would look at again and again."""
    gc.collect()
    gc.freeze()
