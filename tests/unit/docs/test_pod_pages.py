"""The page about pods lists every container and every process."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.image_script import IMAGES
from steersman.meta import ObjectMeta
from steersman_databases.api import MySQLCluster, MySQLClusterSpec
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.cluster.declared import declare
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.features.pooler.specs import pooler_deployment
from steersman_databases.features.read_replicas.specs import read_replica_statefulset
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod

PAGE = Path("docs/explanation/pods.md").read_text()
POSTGRESQL = declared_cluster()
MYSQL = declare(
    MySQLCluster(metadata=ObjectMeta(name="orders", namespace="shop", uid="1"), spec=MySQLClusterSpec()),
    "steersman.dev/mysql:9.7",
)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rendered pods with the name of their row."""
    settings = InstanceSettings(ordinal=0, image="image")
    for name, cluster, engine in (
        ("PostgreSQL instance", POSTGRESQL, PostgreSQLEngine()),
        ("MySQL instance", MYSQL, MySQLEngine()),
    ):
        yield name, msgspec.to_builtins(instance_pod(cluster, settings, engine.pod_contribution(cluster, 0)))
    replica = read_replica_statefulset(POSTGRESQL, 1, image="image")
    yield "read replica", msgspec.to_builtins(replica)["spec"]["template"]["spec"]
    deployment = pooler_deployment(POSTGRESQL, PoolerSettings(), "rw", image="image")
    yield "pooler", msgspec.to_builtins(deployment)["spec"]["template"]["spec"]


def rendered_rows() -> list[str]:
    """Return the rows of the table of containers, from the rendered pods."""
    return [_row(name, pod, container) for name, pod in pods() for container in pod["containers"]]


def _row(name: str, pod: dict[str, Any], container: dict[str, Any]) -> str:
    command = container["command"]
    program = "steersman-instance agent" if "-c" in command else " ".join(command).removeprefix("/usr/local/bin/")
    ports = ", ".join(str(port["containerPort"]) for port in container.get("ports", ()))
    resources = container.get("resources", {})
    amounts = [
        f"{kind} {', '.join(f'{amount} {what}' for what, amount in sorted(resources[kind].items()))}"
        for kind in ("requests", "limits")
        if resources.get(kind)
    ]
    mounts, below = container["volumeMounts"], "/etc/steersman/"
    written = ", ".join(f"`{each['mountPath']}`" for each in mounts if not each.get("readOnly"))
    read = ", ".join(f"`{each['mountPath'].removeprefix(below)}`" for each in mounts if each.get("readOnly"))
    user = container["securityContext"].get("runAsUser", pod["securityContext"].get("runAsUser", "of the image"))
    token = "yes" if pod["automountServiceAccountToken"] else "no"
    cells = (name, container["name"], f"`{program}`", user, token, ports, "; ".join(amounts) or "as declared")
    return f"| {' | '.join(map(str, cells))} | {written} | {read} |"


def test_page_has_the_rendered_containers() -> None:
    section = PAGE.partition("## Containers\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert rows == rendered_rows()


@pytest.mark.parametrize("engine", ["postgresql", "mysql", "read-replica"])
def test_page_has_every_service_of_the_agent(engine: str) -> None:
    sys.path.insert(0, str(IMAGES / "common"))
    try:
        from steersman_instance.services import SERVICES
    finally:
        sys.path.remove(str(IMAGES / "common"))
    processes = set(re.findall(r"^\| `([a-z-]+)`", PAGE.partition("## Processes\n")[2], re.MULTILINE))
    assert {service.name for service in SERVICES[engine]()} <= processes


def test_page_has_every_program_of_the_server() -> None:
    start = runpy.run_path(str(IMAGES / "postgresql/start.py"))
    started = {re.findall(r"until (\S+);", start[name][-1])[0] for name in ("WATCHDOG", "WATCH")}
    processes = set(re.findall(r"^\| `([a-z-]+)`", PAGE.partition("## Processes\n")[2], re.MULTILINE))
    assert started | {"patroni", "postgres", "steersman-agent", "mysqld", "pgbouncer"} <= processes
