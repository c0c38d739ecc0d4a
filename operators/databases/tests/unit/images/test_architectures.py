"""Images are for amd64 and arm64 alike: what goes into them names neither, and a release builds both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
IMAGES = ROOT / "operators/databases/images"
PROJECT = ROOT / "packages/steersman-cli/src/steersman_cli/templates/project/files"
WORKFLOWS = (ROOT / ".github/workflows/release.yml", PROJECT / ".github/workflows/release.yml.jinja")
PROCESSOR = re.compile("amd64|x86[-_]64|arm64|aarch64", re.IGNORECASE)
PLATFORMS = re.compile(r"^ +platforms: (.*)$", re.MULTILINE)


def test_images_contain_nothing_architecture_specific() -> None:
    of_servers = [path for path in IMAGES.rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc")]
    assert len([path for path in of_servers if path.name == "Containerfile"]) == 3
    for path in (*of_servers, PROJECT / "Containerfile.jinja", ROOT / "requirements/operator.txt"):
        assert not PROCESSOR.findall(path.read_text()), path


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=["ours", "a project's"])
def test_release_builds_both_architectures(workflow: Path) -> None:
    text = workflow.read_text()
    pushes = text.count("uses: docker/build-push-action@")
    assert pushes and PLATFORMS.findall(text) == ["linux/amd64,linux/arm64"] * pushes
