"""Manifests in files: what is refused, however it is asked for."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from steersman.errors import ConfigurationError
from steersman.meta.manifests import manifests_in


@pytest.mark.parametrize("kinds", [(), ("ConfigMap",)])
def test_an_object_says_its_version(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    (tmp_path / "half.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    with pytest.raises(ConfigurationError, match=r"half\.yaml is no Kubernetes manifest"):
        manifests_in(tmp_path, kinds)


def test_the_standard_input_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe: a"), errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match="cannot read -"):
        manifests_in(Path("-"))
