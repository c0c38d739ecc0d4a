"""GitHub accepts the workflows of projects and of this repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from framework_support.actionlint import complaints
from framework_support.projects import INIT, create_project

pytestmark = pytest.mark.xdist_group("workflows")

WORKFLOWS = Path(__file__).parents[5] / ".github/workflows"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_project(tmp_path_factory.mktemp("workflows") / "databaseuser", INIT)


@pytest.mark.requirement("pattern/publish")
def test_project_workflows_are_valid(project: Path) -> None:
    assert complaints(project / ".github/workflows") == ""


def test_workflows_call_existing_make_targets(project: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (project / "Makefile").read_text(), re.MULTILINE))
    release = yaml.safe_load((project / ".github/workflows/release.yml").read_text())
    commands = [s.get("run", "") for job in release["jobs"].values() for s in job.get("steps", ())]
    called_targets = {word for c in commands if c.startswith("make ") for word in c.split()[1:] if "=" not in word}
    assert {"chart", "bundle"} <= called_targets <= targets


def test_workflows_push_with_the_building_tool(project: Path) -> None:
    """GitHub runners have podman and docker, which do not share images."""
    release = yaml.safe_load((project / ".github/workflows/release.yml").read_text())
    assert "docker push" in str(release["jobs"])
    command = ["make", "--dry-run", "--no-print-directory", "build", "bundle-build", "sbom"]
    environment = os.environ | {name: value for name, value in release["env"].items() if "${{" not in value}
    output = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    builds = [line for line in output.stdout.splitlines() if re.search(r"steersman_cli (build|sbom) ", line)]
    assert len(builds) == 3
    assert all("--builder docker" in line for line in builds)


def test_repository_workflows_are_valid() -> None:
    assert complaints(WORKFLOWS) == ""


def test_workflow_linter_reports_errors(tmp_path: Path) -> None:
    (tmp_path / "wrong.yml").write_text(
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    needs: b\n    steps: []\n"
    )
    assert "needs" in complaints(tmp_path)
