"""Manifests from types, objects, files and directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from framework_support.widget import Widget
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.errors import ConfigurationError
from steersman.meta import ObjectMeta
from steersman_manifests.crd import definition
from steersman_testing.manifests import ManifestSource, collect_manifests

CONFIG_MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
DOCUMENTS = """\
# Comments and empty documents are left out.
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: v1
kind: Secret
metadata: {name: b}
---
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
"""


def names(*sources: ManifestSource) -> list[str]:
    return [m["metadata"]["name"] for m in collect_manifests(sources, ("ConfigMap",))]


@pytest.mark.parametrize(
    "source",
    [
        CONFIG_MAP,
        ConfigMap(metadata=ObjectMeta(name="a")),
        core.ConfigMap(metadata=meta.ObjectMeta(name="a")),
    ],
)
def test_manifests_from_accepts_each_source(source: ManifestSource) -> None:
    (found,) = collect_manifests([source], ("ConfigMap",))
    assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == ("v1", "ConfigMap", "a")


def test_manifests_from_type_returns_definition() -> None:
    assert collect_manifests([Widget], ("CustomResourceDefinition",)) == [definition(Widget)]


def test_the_form_of_old_clusters_is_left_out(tmp_path: Path) -> None:
    for form in ("v1", "v1beta1"):
        (tmp_path / f"{form}.json").write_text(json.dumps(definition(Widget, api_version=form)))
    assert collect_manifests([tmp_path], ("CustomResourceDefinition",)) == [definition(Widget)]


def test_manifests_from_filters_kinds(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(DOCUMENTS)
    assert names(file) == names(str(file)) == ["a", "c"]


def test_of_a_directory_its_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "2.yml").write_text(DOCUMENTS)
    (tmp_path / "1.json").write_text(json.dumps({**CONFIG_MAP, "metadata": {"name": "first"}}))
    (tmp_path / "kustomization.txt").write_text("{{ not YAML }}")
    (tmp_path / "deeper.yaml").mkdir()
    (tmp_path / "deeper.yaml" / "3.yaml").write_text(DOCUMENTS)
    assert names(tmp_path) == ["first", "a", "c"]


def test_manifests_from_ignores_other_files(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text('a: !!python/name:material.extensions.emoji.twemoji ""')
    (tmp_path / "template.yaml").write_text("a: {{ .Values.b }}: c")
    (tmp_path / "compose.yaml").write_text("services: {a: {image: b}}")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "all.yaml").write_text(DOCUMENTS)
    assert names(tmp_path) == ["a", "c"]


def test_all_there_is_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(DOCUMENTS)
    assert [m["metadata"]["name"] for m in collect_manifests([file])] == ["a", "b", "c"]


@pytest.mark.parametrize("content", ["- a", "a: b", "kind: ConfigMap", "kind: List\nitems: [a]"])
def test_manifests_from_without_filter_rejects_other_files(content: str, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(content)
    for source in (tmp_path, tmp_path / "other.yaml"):
        with pytest.raises(ConfigurationError, match=r"other\.yaml is not a Kubernetes manifest: set apiVer"):
            collect_manifests([source])


def test_manifests_from_empty_file_raises(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("---\n")
    with pytest.raises(ConfigurationError, match=r"empty\.yaml has no manifest$"):
        collect_manifests([tmp_path / "empty.yaml"])


def test_manifests_from_error_names_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=rf"config/crd does not exist \(looked for in {tmp_path}\)"):
        names("config/crd")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"^empty has no ConfigMap$"):
        names("empty")
    with pytest.raises(ConfigurationError, match=r"^Widget has no ConfigMap or Secret$"):
        collect_manifests([Widget], ("ConfigMap", "Secret"))
    with pytest.raises(ConfigurationError, match=r"^the manifest of kind None has no ConfigMap$"):
        names({})
    (tmp_path / "template.yaml").write_text("kind: ConfigMap\na: {{ .Values.b }}: c")
    for source in (tmp_path, tmp_path / "template.yaml"):
        with pytest.raises(ConfigurationError, match=r"(?s)cannot read .*template\.yaml: .*line 2"):
            names(source)
