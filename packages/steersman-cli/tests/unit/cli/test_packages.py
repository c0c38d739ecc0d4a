"""``steersman chart``, ``installer`` and ``sbom``: output and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from framework_support.projects import steersman
from steersman.errors import ConfigurationError
from steersman_cli.packaging import ProjectMetadata

IMAGE = ("--image", "example.com/databaseuser:v1")


# Output of ``pip inspect`` in the environment of the tests, which contains Steersman.


def pip_inspect_report() -> dict[str, Any]:
    command = [sys.executable, "-m", "pip", "inspect", "--local"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_sbom_is_valid_cyclonedx(monkeypatch: pytest.MonkeyPatch) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    from steersman_cli.packaging.sbom import render_sbom

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    report, about = pip_inspect_report(), ProjectMetadata("steersman", version("steersman"))
    text = render_sbom(report, about)
    assert render_sbom({**report, "installed": report["installed"][::-1]}, about) == text
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    root = found["metadata"]["component"]
    assert (root["name"], root["type"]) == ("steersman", "application")
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    components = {c["name"]: c for c in found["components"]}
    assert "steersman" not in components
    assert components["msgspec"]["purl"] == f"pkg:pypi/msgspec@{version('msgspec')}"
    assert components["msgspec"]["licenses"][0]["license"]["id"] == "BSD-3-Clause"
    needs = {d["ref"]: set(d.get("dependsOn", ())) for d in found["dependencies"]}
    assert components["msgspec"]["bom-ref"] in needs[root["bom-ref"]]
    assert components["msgspec"]["bom-ref"] not in needs[components["rich"]["bom-ref"]]


def test_sbom_has_hashes_from_pip() -> None:
    from steersman_cli.packaging.sbom import render_sbom

    metadata = {"name": "Shop_API", "version": "2", "requires_dist": ["other; extra == 'x'", "shop"]}
    archive = {"archive_info": {"hashes": {"sha256": "ab" * 32, "md5": "0"}}}
    entries: list[dict[str, Any]] = [
        {"metadata": {"name": "shop", "version": "1", "requires_dist": ["Shop.API[x]>=2"]}, "download_info": {}},
        {"metadata": metadata, "download_info": archive},
        {"metadata": {"name": "other", "version": "3", "license": "a\nlong text", "classifier": []}},
    ]
    found = json.loads(render_sbom({"install": entries, "environment": {}}, ProjectMetadata("shop", "1")))
    components = {c["name"]: c for c in found["components"]}
    assert components["Shop_API"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert components["Shop_API"]["purl"] == "pkg:pypi/shop-api@2"
    assert "licenses" not in components["other"]
    needs = {d["ref"]: d.get("dependsOn") for d in found["dependencies"]}
    assert needs["pkg:pypi/shop-api@2"] == ["pkg:pypi/other@3", "pkg:pypi/shop@1"]


def test_sbom_without_project_raises() -> None:
    from steersman_cli.packaging.sbom import render_sbom

    with pytest.raises(ConfigurationError, match="shop is not among the packages: none"):
        render_sbom({"installed": []}, ProjectMetadata("shop", "1"))


def test_sbom_image_is_inspected_by_its_builder(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script replaces podman. An end-to-end test covers the real podman."""
    report: dict[str, Any] = {
        "installed": [{"metadata": {"name": "databaseuser", "version": "7"}}],
        "environment": {},
    }
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/asked\ncat <<'end'\n{json.dumps(report)}\nend\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = steersman(pristine, "sbom", *IMAGE, "--builder", "podman", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert '"version": "7"' in result.stdout
    invocation = (tmp_path / "asked").read_text().strip()
    assert invocation.endswith(f"--entrypoint=python3 {IMAGE[1]} -m pip inspect --local")
    podman.write_text("#!/bin/sh\necho no such image >&2\nexit 125\n")
    result = steersman(pristine, "sbom", *IMAGE, "--builder", "podman")
    assert result.returncode == 2
    assert "no such image" in result.stderr
