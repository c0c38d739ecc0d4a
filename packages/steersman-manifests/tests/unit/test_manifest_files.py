"""Manifests in files, and errors for invalid files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from steersman.errors import ConfigurationError
from steersman_manifests.manifest_files import load_manifests


@pytest.mark.parametrize("kinds", [(), ("ConfigMap",)])
def test_manifest_without_api_version_raises(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    (tmp_path / "half.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    with pytest.raises(ConfigurationError, match=r"half\.yaml is not a Kubernetes manifest"):
        load_manifests(tmp_path, kinds)


def test_manifests_from_binary_stdin_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe: a"), errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match="cannot read -"):
        load_manifests(Path("-"))
