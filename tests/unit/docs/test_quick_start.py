"""Run the quick start in memory and compare its output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
import yaml

from database_support.unit import cluster_harness
from database_support.unit.cluster_harness import ClusterHarness
from framework_support.documented_code import DOCS
from steersman.api.apply import core, meta
from steersman.api.core_v1 import PersistentVolumeClaim, Secret, Service
from steersman.client.transport import HttpRequest
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster
from steersman_databases.api.cluster_common import ClusterMember
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.kubectl import status
from steersman_testing import virtual_time

KINDS: Mapping[str, type[Any]] = {each.__name__: each for each in (PostgreSQLCluster, Database, DatabaseUser)}
SHORT = {"pg": PostgreSQLCluster, "db": Database, "dbu": DatabaseUser}
REGISTRY = "registry.example.com"


def page_text(page: str) -> str:
    return (DOCS / page).read_text()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    """Prepare the environment of the operator for the cluster ``shop/main``."""
    return use_cluster_name(monkeypatch, ObjectKey("shop", "main"))


def use_cluster_name(monkeypatch: pytest.MonkeyPatch, key: ObjectKey) -> ClusterHarness:
    monkeypatch.setattr(cluster_harness, "KEY", key)
    monkeypatch.setattr(cluster_harness, "NAMES", ClusterNames(key))
    return ClusterHarness()


def command_output(page: str, command: str) -> str:
    """Return the output below a command, until the next prompt."""
    _, found, rest = page_text(page).partition(f"$ {command}\n")
    assert found, f"{page} does not say {command}"
    return re.split(r"^(?:\$ |```)", rest, maxsplit=1, flags=re.MULTILINE)[0]


def applied_manifests() -> Iterator[dict[str, Any]]:
    """Yield the objects that the quick start applies, in order."""
    for block in re.findall(r"<<EOF\n(.*?)^EOF$", page_text("tutorials/quick-start.md"), re.MULTILINE | re.DOTALL):
        yield from (found for found in yaml.safe_load_all(block) if found["kind"] in KINDS)


def kubectl_table(world: ClusterHarness, kind: type[Any], key: ObjectKey) -> str:
    """Return the columns of ``kubectl get`` for one object, without its age."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    response = world.server.handle(HttpRequest(method="GET", path=kind.api_resource.path(key), accept=accept))
    found = json.loads(response.body)
    chosen = [n for n, c in enumerate(found["columnDefinitions"]) if not c["priority"] and c["name"] != "Age"]
    names = [found["columnDefinitions"][n]["name"].upper() for n in chosen]
    (row,) = found["rows"]
    cells = ["" if (value := row["cells"][n]) is None else str(value) for n in chosen]
    widths = [max(map(len, column)) for column in zip(names, cells, strict=True)]
    return "\n".join(
        "".join(f"{cell:<{width + 3}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (names, cells)
    )


def without_age_column(printed: str) -> str:
    return "\n".join(re.sub(r" +\S+$", "", line).rstrip() for line in printed.splitlines())


def assign_nodes(cluster: PostgreSQLCluster, lag: int) -> PostgreSQLCluster:
    """Set the pod status that kubelets would report, one node per instance."""

    def placed(number: int, member: ClusterMember) -> ClusterMember:
        streams = member.state == "Streaming"
        changes = {"node": f"node-{number}", "lag_bytes": lag if streams else None}
        return msgspec.structs.replace(member, **changes)

    members = tuple(placed(number, member) for number, member in enumerate(cluster.status.members, 1))
    return msgspec.structs.replace(cluster, status=msgspec.structs.replace(cluster.status, members=members))


def object_names(world: ClusterHarness, *kinds: type[Any]) -> str:
    """``kubectl get … -o name`` in the namespace."""
    found = [
        f"{kind.api_resource.kind.lower()}/{name}"
        for kind in kinds
        for name in sorted(o.metadata.name for o in world.server.read_all(kind) if o.metadata.namespace == "shop")
    ]
    return "".join(f"{name}\n" for name in found)


@virtual_time
async def test_quick_start_page_matches_implementation(
    world: ClusterHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "tutorials/quick-start.md"
    monkeypatch.setenv("STEERSMAN_IMAGE_POSTGRESQL_17", f"{REGISTRY}/postgresql:17")
    await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name="shop")))
    async with world.operator():
        for manifest in applied_manifests():
            kind = KINDS[manifest["kind"]]
            key = ObjectKey("shop", manifest["metadata"]["name"])
            wire = {"metadata": {**manifest["metadata"], "namespace": "shop"}, "spec": manifest["spec"]}
            await world.client.create(decode_builtins(wire, kind))
            await world.until(f"{manifest['kind']} is Ready", lambda kind=kind, key=key: is_ready(world, kind, key))
        for command, name in (("pg main", "main"), ("db", "orders"), ("dbu", "clerk")):
            printed = kubectl_table(world, SHORT[command.split()[0]], ObjectKey("shop", name))
            assert without_age_column(command_output(page, f"kubectl get {command}")) == printed
        assert command_output(page, "kubectl get service -o name") == object_names(world, Service)
        database = world.server.read(Database, ObjectKey("shop", "orders"))
        assert database is not None
        connection_string = command_output(page, "kubectl get db orders -o jsonpath='{.status.connectionString}'")
        assert connection_string.strip() == database.status.connection_string
        assert world.cluster is not None
        status.show(status.report(assign_nodes(world.cluster, 0)))
        assert capsys.readouterr().out == command_output(page, "kubectl steersman status main")
        await world.annotate(switchover="any")
        await world.until("switched over", lambda: world.status.primary == "main-1")
        for kind, name in ((DatabaseUser, "clerk"), (Database, "orders"), (PostgreSQLCluster, "main")):
            key = ObjectKey("shop", name)
            await world.client.delete(kind, key)
            await world.until(f"{name} is gone", lambda kind=kind, key=key: world.server.read(kind, key) is None)
        await world.wait(30)
        retained = object_names(world, PersistentVolumeClaim, Secret)
        assert command_output(page, "kubectl get pvc,secret -o name") == retained
        assert "clerk" not in world.hosts.sql.users
        assert "orders" in world.hosts.sql.databases


def is_ready(world: ClusterHarness, kind: type[Any], key: ObjectKey) -> bool:
    found = world.server.read(kind, key)
    conditions = () if found is None or found.status is None else found.status.conditions
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


@virtual_time
async def test_quick_start_shows_status_of_fenced_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = use_cluster_name(monkeypatch, ObjectKey("prod", "shop"))
    await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name="prod")))
    async with world.operator():
        await world.create()
        await world.ready(3)
        page = "how-to/operate-a-cluster.md"
        printed = kubectl_table(world, PostgreSQLCluster, ObjectKey("prod", "shop"))
        assert without_age_column(command_output(page, "kubectl get pg shop")) == printed
        await world.annotate(switchover="shop-1")
        await world.wait(20)
        await world.annotate(fenced_instances="shop-2")
        await world.until("fenced", lambda: world.condition("Ready") == "False/Fenced")
        await world.wait(5)
        assert world.cluster is not None
        status.show(status.report(assign_nodes(world.cluster, 2 << 20)))
        output = re.sub(r"20\d\d-\S+ \S+ UTC", "TIME", capsys.readouterr().out)
        expected = re.sub(r"20\d\d-\S+ \S+ UTC", "TIME", command_output(page, "kubectl steersman status shop"))
        assert output == expected
