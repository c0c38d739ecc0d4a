"""``steersman bundle`` in a project."""

from __future__ import annotations

from pathlib import Path

from framework_support.projects import steersman

BUNDLE = ("bundle", "--image", "registry.example.com/databaseuser:v1", "--version", "1.0.0")


def test_bundle_is_written_and_check_detects_changes(project: Path) -> None:
    stale_file = project / "bundle/manifests/former.yaml"
    stale_file.parent.mkdir(parents=True)
    stale_file.write_text("kind: Secret\n")
    result = steersman(project, *BUNDLE)
    assert result.returncode == 0, result.stderr
    assert "wrote bundle/manifests/databaseuser.clusterserviceversion.yaml" in result.stdout
    assert "wrote bundle.Containerfile" in result.stdout
    assert not stale_file.exists()
    assert steersman(project, *BUNDLE, "--check").returncode == 0
    stale = steersman(project, *BUNDLE, "--channels", "stable,fast", "--default-channel", "fast", "--check")
    assert stale.returncode == 1
    assert "+LABEL operators.operatorframework.io.bundle.channel.default.v1=fast" in stale.stdout
    assert "run `make bundle`" in stale.stderr


def test_bundle_dry_run_writes_no_files(project: Path) -> None:
    result = steersman(project, *BUNDLE, "--output", "dist/olm", "--dry-run")
    assert "# olm/metadata/annotations.yaml" in result.stdout
    assert not (project / "dist").exists()


def test_bundle_without_image_fails(pristine: Path) -> None:
    result = steersman(pristine, "bundle")
    assert result.returncode == 2
    assert "the bundle needs the operator's image" in result.stderr
