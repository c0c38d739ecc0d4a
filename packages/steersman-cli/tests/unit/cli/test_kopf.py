"""ConvertedHandler of Kopf operators from their source, and removal of Kopf's marks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_cli.app import app
from steersman_cli.kopf import cluster
from steersman_cli.kopf.conversion import convert, required_permissions
from steersman_cli.kopf.handlers import KopfHandler, ResourceName, read_handlers
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

OPERATOR = """
import kopf
from kubernetes import client

GROUP = "shop.example.com"


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = 20


@kopf.on.create(GROUP, "v1", "buckets", retries=3)
@kopf.on.resume(GROUP, "v1", "buckets")
async def made(spec, name, namespace, patch, **_):
    if not spec.get("region"):
        raise kopf.PermanentError("region is missing")
    child = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"bucket": name}}
    kopf.adopt(child)
    client.CoreV1Api().create_namespaced_config_map(namespace, child)
    patch.status["phase"] = "Ready"


@kopf.on.delete("buckets.v1.shop.example.com")
def removed(name, **_):
    print(name)


@kopf.timer("buckets", interval=60)
def measure(spec, **_):
    pass


@kopf.on.event("pods", labels={"app": "bucket"})
def pod_event(event, **_):
    pass
"""
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "buckets.shop.example.com"},
    "spec": {
        "group": "shop.example.com",
        "scope": "Namespaced",
        "names": {"plural": "buckets", "singular": "bucket", "kind": "Bucket"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"region": {"type": "string"}}},
                            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}
BUCKET = ApiResource("shop.example.com", "v1", "Bucket", "buckets")
MARKER = "kopf.zalando.org/KopfFinalizerMarker"
LAST = "kopf.zalando.org/last-handled-configuration"


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    directory = tmp_path / "bucket-operator"
    (directory / "crds").mkdir(parents=True)
    (directory / "buckets.py").write_text(OPERATOR)
    (directory / "crds" / "buckets.yaml").write_text(yaml.safe_dump(CRD))
    return directory


def handlers_of(tmp_path: Path, source: str) -> list[KopfHandler]:
    file = tmp_path / "handlers.py"
    file.write_text(source)
    return read_handlers(file)


@pytest.mark.parametrize(
    ("decorator", "resource"),
    [
        ('@kopf.on.update("buckets")', ResourceName("", "", "buckets")),
        ('@kopf.on.update("shop.example.com", "v1", "buckets")', ResourceName("shop.example.com", "v1", "buckets")),
        ('@kopf.on.update("shop.example.com/v1", "buckets")', ResourceName("shop.example.com", "v1", "buckets")),
        ('@kopf.on.update("buckets.shop.example.com")', ResourceName("shop.example.com", "", "buckets")),
        ('@kopf.on.update("v1", "pods")', ResourceName("", "v1", "pods")),
        ('@kopf.on.update(group="shop.example.com", kind="Bucket")', ResourceName("shop.example.com", "", "Bucket")),
        ("@kopf.on.update(NAME)", ResourceName("", "", "carts")),
        ("@kopf.on.update(compute())", None),
        ("@kopf.on.update(kopf.EVERYTHING)", None),
    ],
)
def test_resource_is_read_from_decorators(tmp_path: Path, decorator: str, resource: ResourceName | None) -> None:
    [handler] = handlers_of(tmp_path, f'import kopf\nNAME = "carts"\n\n{decorator}\ndef changed(**_): pass\n')
    assert (handler.activity, handler.resource) == ("update", resource)


@pytest.mark.parametrize(
    "imports",
    [
        "import kopf as k\n@k.on.create('a')",
        "from kopf import on\n@on.create('a')",
        "from kopf.on import create as c\n@c('a')",
    ],
)
def test_handlers_are_found_by_any_import(tmp_path: Path, imports: str) -> None:
    [handler] = handlers_of(tmp_path, f"{imports}\ndef made(**_): pass\n")
    assert handler.activity == "create"


def test_resource_is_read_from_constants_of_other_modules(tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text('GROUP = "shop.example.com"\nPLURAL = "buckets"\n')
    source = 'import constants, kopf\nfrom constants import PLURAL\n@kopf.on.delete(constants.GROUP, "v1", PLURAL)\n'
    (tmp_path / "handlers.py").write_text(f"{source}def removed(**_): pass\n")
    [handler] = read_handlers(tmp_path)
    assert handler.resource == ResourceName("shop.example.com", "v1", "buckets")


def test_computed_resource_must_be_given_for_the_cluster(tmp_path: Path) -> None:
    source = tmp_path / "handlers.py"
    source.write_text("import kopf\n@kopf.on.delete(compute())\ndef removed(**_): pass\n")
    result = CliRunner().invoke(app, ["migrate", "kopf", str(source), "--cluster"])
    assert result.exit_code == 2
    assert "handlers.py:3 computes its resource" in result.output


@pytest.mark.parametrize("source", ["import kopf\n", "def broken(:\n", "@on.create('a')\ndef made(): pass\n"])
def test_source_without_handlers_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has no handler of Kopf|cannot read"):
        handlers_of(tmp_path, source)


def test_conversion_names_what_is_left(operator: Path) -> None:
    conversions = {(c.handler.activity, c.handler.function): c for c in map(convert, read_handlers(operator))}
    made = conversions["create", "made"]
    assert made.becomes == "reconcile()"
    assert "kopf.PermanentError: raise TerminalError" in made.steps
    assert "remove the limit: a failed reconcile is repeated with back-off" in made.steps
    assert any(step.startswith("patch: write the status") for step in made.steps)
    assert conversions["delete", "removed"].becomes.startswith("cleanup()")
    assert conversions["event", "pod_event"].becomes == ""
    assert required_permissions([made.handler]) == {"ConfigMap": ("create",)}


def test_command_prints_conversions(operator: Path) -> None:
    result = CliRunner().invoke(app, ["migrate", "kopf", str(operator), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert [(row["function"], row["activity"]) for row in json.loads(result.stdout)] == [
        ("configure", "startup"),
        ("made", "create"),
        ("made", "resume"),
        ("removed", "delete"),
        ("measure", "timer"),
        ("pod_event", "event"),
    ]


def test_written_operator_starts(operator: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    result = CliRunner().invoke(app, ["migrate", "kopf", str(operator), "--to", str(target)])
    assert result.exit_code == 0, result.output
    assert "cp -r CONVERTED/kinds src/bucket_operator/kinds" in result.stderr
    text = (target / "main.py").read_text()
    assert "return Result(requeue_after=60)" in text and "async def cleanup(self, bucket: Bucket)" in text
    assert text.count("region is missing") == 1, "the source of a function stands there once"
    assert "# The handlers call: create ConfigMap." in text
    command = [sys.executable, "main.py", "--help"]
    assert (
        "Run the operator" in subprocess.run(command, cwd=target, capture_output=True, text=True, check=True).stdout
    )
    again = CliRunner().invoke(app, ["migrate", "kopf", str(operator), "--to", str(target)])
    assert again.exit_code == 2 and "exists" in again.output


def test_written_operator_declares_kinds_without_crds(tmp_path: Path) -> None:
    source = tmp_path / "handlers.py"
    source.write_text('import kopf\n@kopf.on.create("example.org", "v1", "carts")\ndef made(**_): pass\n')
    target = tmp_path / "new"
    assert CliRunner().invoke(app, ["migrate", "kopf", str(source), "--to", str(target)]).exit_code == 0
    program = "from main import Cart; print(Cart.api_resource)"
    found = subprocess.run([sys.executable, "-c", program], cwd=target, capture_output=True, text=True, check=True)
    assert "group='example.org', version='v1', kind='Cart', plural='carts'" in found.stdout


STATUS_WRITER = """
import kopf

def helper(): return 1

@kopf.on.field("example.org", "v1", "carts", field="metadata.labels")
def made(status, patch, **_):
    patch.status["phase"] = "Ready"
    patch.status["usedGib"] = helper()
    patch.status["class"] = pod.status.get("podIP")
    patch.status["conditions"] = []
    if status.get("count", 0):
        return {"url": "x"}
"""


def test_status_fields_are_read_from_handlers(tmp_path: Path) -> None:
    [made] = handlers_of(tmp_path, STATUS_WRITER)
    assert made.status_fields == {"phase": "string", "usedGib": "", "count": "", "class": "", "conditions": ""}
    steps = convert(made).steps
    assert "add .with_predicate(generation_changed | labels_changed)" in steps
    assert any(step.startswith("return value: Kopf stores it in status.made") for step in steps)


@pytest.mark.parametrize(
    "code", ["return", "return None", "x = lambda: 1", "def f(): return 1"], ids=["bare", "none", "lambda", "nested"]
)
def test_handler_without_return_value_has_no_step(tmp_path: Path, code: str) -> None:
    [made] = handlers_of(tmp_path, f"import kopf\n@kopf.on.create('a')\ndef made(**_):\n    {code}\n")
    assert not made.returns_value


def test_command_prints_helpers_to_copy(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(STATUS_WRITER)
    result = CliRunner().invoke(app, ["migrate", "kopf", str(tmp_path)])
    assert "handlers.py:4" in result.stdout and "helper: copy it: only handlers are converted" in result.stdout


@pytest.mark.parametrize("has_crd", [True, False])
def test_written_kind_has_status_fields_of_handlers(tmp_path: Path, has_crd: bool) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "handlers.py").write_text(STATUS_WRITER)
    if has_crd:
        names = {"plural": "carts", "singular": "cart", "kind": "Cart"}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
        (source / "crd.yaml").write_text(yaml.safe_dump({**CRD, "metadata": {"name": "carts"}, "spec": spec}))
    target = tmp_path / "new"
    result = CliRunner().invoke(app, ["migrate", "kopf", str(source), "--to", str(target)])
    assert result.exit_code == 0, result.output
    # The kind of a CRD has no status until one is written.
    program = """
from datetime import UTC, datetime
from main import Cart
from steersman.controller.status import merge_status
from steersman.meta import decode_builtins
cart = decode_builtins({"metadata": {"name": "a"}, "spec": {}}, Cart)
print(merge_status(cart, cart, datetime.now(UTC), (), {"phase": "Ready", "used_gib": 1, "count": 2, "class_": "x"}))
"""
    found = subprocess.run([sys.executable, "-c", program], cwd=target, capture_output=True, text=True)
    assert "phase='Ready'" in found.stdout, found


class MarkedCluster:
    def __init__(self) -> None:
        self.server = InMemoryApiServer(virtual_runtime())
        self.client = Client(self.server, field_manager="migration")
        self.server.load(CRD)
        for name, finalizers, marks in (
            ("a", [MARKER, "example.com/mine"], {LAST: "{}", "kopf.dev/progress": "{}", "example.com/mine": "x"}),
            ("b", [], {"example.com/mine": "x"}),
        ):
            metadata = {"name": name, "namespace": "default", "finalizers": finalizers, "annotations": marks}
            self.server.load(
                {"apiVersion": "shop.example.com/v1", "kind": "Bucket", "metadata": metadata, "spec": {}}
            )

    async def clean(self, *, dry_run: bool) -> list[str]:
        resources = await cluster.resolve_resources(self.client, [ResourceName("", "", "buckets")])
        return [
            found.key.name
            async for found in cluster.find_leftovers(self.client, resources, cluster.Marks())
            if await cluster.remove(self.client, found, cluster.Marks(), dry_run=dry_run)
        ]

    async def marks(self) -> tuple[list[str], list[str]]:
        meta = (await self.client.get(unstructured(BUCKET), ObjectKey("default", "a"))).metadata
        return list(meta.finalizers), sorted(meta.annotations)


@virtual_time
async def test_marks_of_kopf_are_removed() -> None:
    world = MarkedCluster()
    before = await world.marks()
    assert await world.clean(dry_run=True) == ["a"]
    assert await world.marks() == before
    assert await world.clean(dry_run=False) == ["a"]
    assert await world.marks() == (["example.com/mine"], ["example.com/mine"])
    assert await world.clean(dry_run=False) == []


@virtual_time
async def test_unknown_resource_is_reported() -> None:
    world = MarkedCluster()
    with pytest.raises(ConfigurationError, match=r"the cluster has no resource carts\.example\.org"):
        await cluster.resolve_resources(world.client, [ResourceName("example.org", "", "carts")])


@virtual_time
async def test_builtin_kind_precedes_crds_of_its_name() -> None:
    world = MarkedCluster()
    names = {"plural": "services", "singular": "service", "kind": "Service"}
    spec = {**CRD["spec"], "group": "serving.example.org", "names": names}
    world.server.load({**CRD, "metadata": {"name": "services.serving.example.org"}, "spec": spec})
    [found] = await cluster.resolve_resources(world.client, [ResourceName("", "v1", "services")])
    assert found.group == ""
    [found] = await cluster.resolve_resources(world.client, [ResourceName("serving.example.org", "", "services")])
    assert found.group == "serving.example.org"
