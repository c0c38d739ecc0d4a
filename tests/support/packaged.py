"""The installation of the tutorial's project, with webhooks and every optional component."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import CREATE, INIT, KIND, made
from steersman.packages import Installation

WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")


@pytest.fixture(scope="session")
def webhooked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with webhooks. Do not change it."""
    return made(tmp_path_factory.mktemp("packages") / "databaseuser", INIT, CREATE, WEBHOOK)


@pytest.fixture(scope="session")
def installation(webhooked: Path) -> Installation:
    """What it deploys."""
    return Installation.read(webhooked / "config", "databaseuser")
