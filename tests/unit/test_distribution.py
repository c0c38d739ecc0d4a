"""How tests are distributed to workers."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("together")
def test_tests_of_one_group_share_a_worker(request: pytest.FixtureRequest) -> None:
    """By their names. Where pytest does not let those change, each worker starts every server, and nobody is told."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("they are not distributed")
    assert "@together" in os.environ["PYTEST_CURRENT_TEST"]
