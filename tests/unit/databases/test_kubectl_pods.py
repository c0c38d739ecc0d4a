"""``kubectl steersman`` and the pods of a cluster: their logs, a shell in one, and a report of all."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from plugin_under_test import GROUP, KEY, call, pod, reached, server, set_ready
from steersman.meta import ObjectKey
from steersman.testing import InMemoryApiServer

__all__ = ["reached", "server"]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that took the process over, in their order."""
    lines: list[list[str]] = []

    def execvp(_: str, line: list[str]) -> None:
        lines.append(line)

    monkeypatch.setattr(os, "execvp", execvp)
    return lines


def test_the_logs_of_all_instances_say_whose_they_are(server: InMemoryApiServer) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    server.logs[ObjectKey(KEY.namespace, "shop-0-0")] = ["one", "two"]
    server.logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["three"]
    assert call("logs", "shop").output == "shop-0  one\nshop-0  two\nshop-1  three\n"
    assert call("logs", "shop", "--tail", "1").output == "shop-0  two\nshop-1  three\n"


def test_a_shell_is_kubectls_and_knows_no_password(server: InMemoryApiServer, executed: list[list[str]]) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    call("psql", "shop", "--context", "c", "-d", "orders", "--", "-c", "SELECT 1")
    call("psql", "shop", "--replica")
    call("psql", "shop", "--instance", "shop-2")
    first, second, third = executed
    before = ["kubectl", "--context=c", "--namespace=prod", "exec", "--stdin", "--container=server", "shop-1-0", "--"]
    where = ["--host=/run/steersman", "--username=postgres"]
    assert first == [*before, "psql", *where, "--dbname=orders", "-c", "SELECT 1"]
    assert "shop-0-0" in second
    assert "shop-2-0" in third


@pytest.mark.parametrize(
    ("labelled", "ready", "chosen"),
    [
        (["shop-0-0", "shop-1-0"], ["shop-0-0", "shop-1-0"], "shop-1-0"),
        (["shop-0-0", "shop-1-0"], ["shop-0-0"], "shop-1-0"),
        (["shop-0-0", "shop-2-0"], ["shop-2-0"], "shop-2-0"),
        (["shop-0-0", "shop-2-0"], ["shop-0-0", "shop-2-0"], "shop-0-0"),
    ],
    ids=["of the status", "of the status, not ready", "ready", "by name"],
)
def test_a_lost_pod_that_is_still_labelled_is_not_the_primary(
    server: InMemoryApiServer, executed: list[list[str]], labelled: list[str], ready: list[str], chosen: str
) -> None:
    server.load(*(pod(name, "primary") for name in labelled))
    asyncio.run(set_ready(server, *ready))
    call("psql", "shop")
    assert chosen in executed[0]


def test_a_replica_that_serves_is_asked_first(server: InMemoryApiServer, executed: list[list[str]]) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-2-0", "replica"))
    asyncio.run(set_ready(server, "shop-2-0"))
    call("psql", "shop", "--replica")
    assert "shop-2-0" in executed[0]


def test_a_mysql_shell_is_for_databases_of_mysql(server: InMemoryApiServer, executed: list[list[str]]) -> None:
    def database(name: str, engine: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "Database",
            "metadata": {"name": name, "namespace": KEY.namespace},
            "spec": {"engine": engine, "version": "17" if engine == "postgresql" else "9.7", "storageSize": "1Gi"},
        }

    server.load(database("blog", "mysql"), database("orders", "postgresql"))
    call("mysql", "blog", "--", "-e", "SELECT 1")
    assert executed[0][-6:] == ["--", "mysql", "--user=root", "--socket=/run/steersman/mysqld.sock", "-e", "SELECT 1"]
    refused = call("mysql", "orders")
    assert refused.exit_code == 2
    assert "use psql" in refused.stderr


def archived(path: Path) -> dict[str, str]:
    """The files of an archive, without the folder that they are in."""
    with tarfile.open(path) as archive:
        files = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_a_report_has_all_but_what_is_secret(server: InMemoryApiServer, tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "shop-admin",
            "namespace": KEY.namespace,
            "labels": pod("shop-1-0", "primary")["metadata"]["labels"],
        },
        "stringData": {"username": "postgres", "password": "hunter2-of-shop"},
    }
    server.load(pod("shop-1-0", "primary"), secret)
    server.logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["a line"]
    path = tmp_path / "shop.tar.gz"
    told = json.loads(call("report", "shop", "--file", str(path), "-o", "json").stdout)
    assert told["file"] == str(path)
    assert path.stat().st_mode & 0o077 == 0
    texts = archived(path)
    assert {"cluster.yaml", "pods.yaml", "secrets.yaml", "logs/instances.txt"} <= texts.keys()
    assert "kind: PostgreSQLCluster" in texts["cluster.yaml"]
    assert texts["logs/instances.txt"] == "shop-1  a line\n"
    assert "- password" in texts["secrets.yaml"]
    everything = "".join(texts.values())
    assert "hunter2-of-shop" not in everything
    assert "aHVudGVyMi1vZi1zaG9w" not in everything


def test_a_report_has_nothing_of_a_release_of_the_same_name(server: InMemoryApiServer, tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": "website", "namespace": KEY.namespace, "labels": labels}
    container = {"name": "web", "image": "i", "env": [{"name": "PASSWORD", "value": "hunter2-of-website"}]}
    stranger = {"metadata": metadata, "spec": {"containers": [container]}}
    template = {"metadata": {"labels": labels}, "spec": stranger["spec"]}
    server.load(
        pod("shop-1-0", "primary"),
        {"apiVersion": "v1", "kind": "Pod", **stranger},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"token": "hunter2-of-website"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": "hunter2-of-website"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )
    path = tmp_path / "shop.tar.gz"
    call("report", "shop", "--file", str(path))
    texts = archived(path)
    assert "shop-1-0" in texts["pods.yaml"]
    everything = "".join(texts.values())
    assert "hunter2-of-website" not in everything
    assert "website" not in everything
