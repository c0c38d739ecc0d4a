"""Each example has current manifests and passes its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import database_servers
from framework_support.projects import EXAMPLES, ours, steersman

SECONDS = 300


@pytest.fixture(params=EXAMPLES, ids=lambda root: root.name)
def example(request: pytest.FixtureRequest) -> Path:
    """Return the path of each example."""
    return request.param


def test_generated_files_are_up_to_date(example: Path) -> None:
    ended = steersman(example, "manifests", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(SECONDS)
def test_its_own_tests_pass(example: Path) -> None:
    # Run in a separate process without the workers and options of this run.
    surroundings = {k: v for k, v in ours().items() if not k.startswith("PYTEST")}
    if (servers := database_servers.root(database_servers.PROMETHEUS)) is not None:
        surroundings["PROMETHEUS_DIRECTORY"] = str(servers / "usr/bin")
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=ci"]  # the same examples each time
    command = [sys.executable, "-m", "pytest", *options, "tests/unit", "tests/integration"]
    ended = subprocess.run(
        command, cwd=example, env=surroundings, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
