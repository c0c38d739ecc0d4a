"""Fixtures of the tutorial's project: ``pristine`` and ``project``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from framework_support.projects import CREATE, INIT, create_project


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's project. Tests must not change it."""
    return create_project(tmp_path_factory.mktemp("pristine") / "databaseuser", INIT, CREATE)


@pytest.fixture
def project(pristine: Path, tmp_path: Path) -> Path:
    """A copy of ``pristine``, which the test may change."""
    return Path(shutil.copytree(pristine, tmp_path / "databaseuser"))
