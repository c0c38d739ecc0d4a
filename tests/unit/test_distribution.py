"""Check the distribution of tests to workers."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("together")
def test_tests_of_one_group_share_a_worker(request: pytest.FixtureRequest) -> None:
    """The suffix that pytest-xdist adds to test names selects the worker."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("the run has no --dist loadgroup")
    assert "@together" in os.environ["PYTEST_CURRENT_TEST"]
