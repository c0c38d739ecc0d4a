"""``steersman bundle`` in a project."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from framework_support.projects import steersman

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

BUNDLE = ("bundle", "--image", "registry.example.com/databaseuser:v1", "--version", "1.0.0")


def test_it_is_written_and_checked(project: Path) -> None:
    former = project / "bundle/manifests/former.yaml"
    former.parent.mkdir(parents=True)
    former.write_text("kind: Secret\n")
    made = steersman(project, *BUNDLE)
    assert made.returncode == 0, made.stderr
    assert "wrote bundle/manifests/databaseuser.clusterserviceversion.yaml" in made.stdout
    assert "wrote bundle.Containerfile" in made.stdout
    assert not former.exists()
    assert steersman(project, *BUNDLE, "--check").returncode == 0
    stale = steersman(project, *BUNDLE, "--channels", "stable,fast", "--default-channel", "fast", "--check")
    assert stale.returncode == 1
    assert "+LABEL operators.operatorframework.io.bundle.channel.default.v1=fast" in stale.stdout
    assert "run `make bundle`" in stale.stderr


def test_a_dry_run_writes_nothing(project: Path) -> None:
    made = steersman(project, *BUNDLE, "--output", "dist/olm", "--dry-run")
    assert "# olm/metadata/annotations.yaml" in made.stdout
    assert not (project / "dist").exists()


def test_an_image_is_needed(pristine: Path) -> None:
    made = steersman(pristine, "bundle")
    assert made.returncode == 2
    assert "a bundle names the operator's image" in made.stderr
