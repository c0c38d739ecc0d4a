"""Data of a former major version, to be upgraded."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume, upgrade_volume


@pytest.fixture
def volume() -> Generator[UpgradeVolume]:
    with upgrade_volume() as made:
        yield made
