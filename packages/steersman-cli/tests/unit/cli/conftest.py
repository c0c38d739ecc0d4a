"""A project, made once, and copied for each test that changes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from framework_support.projects import CREATE, INIT, create_project


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the tutorial. Do not change it."""
    return create_project(tmp_path_factory.mktemp("pristine") / "databaseuser", INIT, CREATE)


@pytest.fixture
def project(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pristine, tmp_path / "databaseuser"))
