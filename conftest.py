"""The project's own pytest plugin, also in a checkout that was installed before there was one."""

from __future__ import annotations

import gc

import pytest

# As users have it, it comes with the package, by an entry point of the same name: then this does nothing.
pytest_plugins = ["steersman_testing.pytest_plugin", "framework_support.case_fixtures"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Nothing that is collected goes away again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spares the garbage collector the thousands of tests, which stay: it looked at all of them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
