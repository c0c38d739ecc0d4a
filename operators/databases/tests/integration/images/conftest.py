"""Data of a former major version, to be upgraded."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume, volume_of_15


@pytest.fixture
def volume() -> Generator[UpgradeVolume]:
    with volume_of_15() as made:
        yield made
