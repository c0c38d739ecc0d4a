"""Data of a former major version, to be upgraded."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.upgraded_volume import Volume, volume_of_15


@pytest.fixture
def volume() -> Generator[Volume]:
    with volume_of_15() as made:
        yield made
