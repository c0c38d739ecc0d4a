"""``scripts/generate_api``: its output for real OpenAPI documents is committed.

The documents in ``openapi`` are excerpts of those of Kubernetes, written with ``--save-excerpt``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[4]
API = ROOT / "packages/steersman/src/steersman/api"
DOCUMENTS = HERE / "openapi"
MODULES = ("apiextensions_v1", "autoscaling_v2", "coordination_v1", "discovery_v1", "networking_v1", "rbac_v1")


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "generate_api"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_generator_output_equals_committed_modules(tmp_path: Path) -> None:
    done = generate("--documents", DOCUMENTS, "--output", tmp_path, "--only", *MODULES)
    assert done.returncode == 0, done.stderr
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.py")}
    assert written == {p for m in MODULES for p in (Path(f"{m}.py"), Path("apply", f"{m.rpartition('_')[0]}.py"))}
    for path in written:
        assert (tmp_path / path).read_text() == (API / path).read_text(), f"{path} was changed by hand"


def test_check_finds_a_change(tmp_path: Path) -> None:
    (tmp_path / "apply").mkdir()
    for path in ("coordination_v1.py", "apply/coordination.py"):
        shutil.copy(API / path, tmp_path / path)
    arguments = ("--documents", DOCUMENTS, "--output", tmp_path, "--only", "coordination_v1", "--check")
    assert generate(*arguments).returncode == 0
    changed = tmp_path / "coordination_v1.py"
    changed.write_text(changed.read_text().replace("int | None", "str | None"))
    done = generate(*arguments)
    assert done.returncode == 1
    assert done.stdout == f"differs: {changed}\n"


@pytest.fixture
def lease(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the path of a document, and its LeaseSpec to modify."""
    file = tmp_path / "documents" / "apis__coordination.k8s.io__v1_openapi.json"
    file.parent.mkdir()
    document = json.loads((DOCUMENTS / file.name).read_text())
    return file, document


def generate_from(file: Path, document: dict[str, Any]) -> str:
    file.write_text(json.dumps(document))
    output = file.parents[1] / "api"
    done = generate("--documents", file.parent, "--output", output, "--only", "coordination_v1")
    assert done.returncode == 0, done.stderr
    return (output / "coordination_v1.py").read_text()


STRINGS = {"type": "array", "items": {"type": "string"}}


FIELDS: list[tuple[str, dict[str, Any], str, str, str | None]] = [
    ("clusterIPs", STRINGS, "cluster_ips", "tuple[str, ...]", 'msgspec.field(default=(), name="clusterIPs")'),
    ("nonResourceURL", STRINGS, "non_resource_url", "tuple[str, ...]", None),
    ("from", {"type": "string"}, "from_", "str | None", "None"),
    ("x-kubernetes-y", {"type": "boolean"}, "x_kubernetes_y", "bool | None", None),
    ("count", {"type": "integer", "default": 0}, "count", "int", "0"),
    ("mode", {"type": "string", "default": "TCP"}, "mode", "str", '"TCP"'),
    ("ca", {"type": "string", "format": "byte"}, "ca", "bytes | None", "None"),
    ("ratio", {"type": "number", "format": "double"}, "ratio", "float | None", "None"),
    (
        "extra",
        {"type": "object", "additionalProperties": STRINGS},
        "extra",
        "FrozenDict[str, tuple[str, ...]]",
        "FrozenDict()",
    ),
]


def test_fields(lease: tuple[Path, dict[str, Any]]) -> None:
    file, document = lease
    properties = document["components"]["schemas"]["io.k8s.api.coordination.v1.LeaseSpec"]["properties"]
    properties |= {wire: schema for wire, schema, *_ in FIELDS}
    written = generate_from(file, document)
    for _, _, name, annotation, default in FIELDS:
        assert f"\n    {name}: {annotation} = " + ("" if default is None else f"{default}\n") in written


def test_generator_escapes_descriptions_in_docstrings(lease: tuple[Path, dict[str, Any]]) -> None:
    file, document = lease
    spec = document["components"]["schemas"]["io.k8s.api.coordination.v1.LeaseSpec"]
    spec["description"] = 'A """quoted\\" thing, e.g. one "so"'
    source = generate_from(file, document)
    namespace: dict[str, Any] = {}
    exec(compile(source, "generated", "exec"), namespace)
    assert namespace["LeaseSpec"].__doc__ == 'A """quoted\\" thing, e.g. one "so"'


def test_generator_unknown_group_version_fails(lease: tuple[Path, dict[str, Any]]) -> None:
    file, document = lease
    schemas = document["components"]["schemas"]
    schemas["io.k8s.api.node.v1.Overhead"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    properties = schemas["io.k8s.api.coordination.v1.LeaseSpec"]["properties"]
    properties["overhead"] = {"$ref": "#/components/schemas/io.k8s.api.node.v1.Overhead"}
    file.write_text(json.dumps(document))
    done = generate("--documents", file.parent, "--output", file.parent, "--only", "coordination_v1")
    assert done.returncode == 1
    assert "io.k8s.api.node.v1.Overhead belongs to a group-version that is not generated" in done.stderr
