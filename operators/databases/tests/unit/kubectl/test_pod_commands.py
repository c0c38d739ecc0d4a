"""``kubectl steersman`` and the pods of a cluster: their logs, a shell in one, and a report of all."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tarfile
from pathlib import Path

import pytest
import typer
import yaml

from database_support.contracts.hba_examples import LINES_WITH_SECRETS
from database_support.unit.plugin import GROUP, KEY, call, pod, reached, server, set_ready
from steersman.client import Client, MergePatch
from steersman.errors import ApiError, ApiStatus, ConnectionFailed, error_from_status
from steersman.meta import ObjectKey
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_testing import InMemoryApiServer, matching

__all__ = ["reached", "server"]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that took the process over, in their order."""
    lines: list[list[str]] = []

    def execvp(_: str, line: list[str]) -> None:
        lines.append(line)

    monkeypatch.setattr(os, "execvp", execvp)
    return lines


def test_logs_are_prefixed_with_instance(server: InMemoryApiServer) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    server.pod_logs[ObjectKey(KEY.namespace, "shop-0-0")] = ["one", "two"]
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["three"]
    assert call("logs", "shop").output == "shop-0  one\nshop-0  two\nshop-1  three\n"
    assert call("logs", "shop", "--tail", "1").output == "shop-0  two\nshop-1  three\n"


UNREACHABLE: list[ApiError | ConnectionFailed] = [
    error_from_status(
        ApiStatus(message="dial tcp 10.0.0.3:10250: no route to host", reason="InternalError", code=500)
    ),
    error_from_status(ApiStatus(message="pods is forbidden: no route to host", reason="Forbidden", code=403)),
    ConnectionFailed("no route to host"),
]


@pytest.mark.parametrize("follow", [[], ["--follow"]])
@pytest.mark.parametrize("failure", UNREACHABLE, ids=lambda failure: type(failure).__name__)
def test_logs_failing_pod_hides_no_other(
    server: InMemoryApiServer, failure: ApiError | ConnectionFailed, follow: list[str]
) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["three"]
    server.fail_next(matching("GET", "/shop-0-0/log"), failure)
    told = call("logs", "shop", *follow)
    assert told.stdout == "shop-1  three\n"
    assert told.stderr == f"shop-0  ({failure})\n"
    assert told.exit_code == 0


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_logs_without_any_exit_with_error(server: InMemoryApiServer, follow: list[str]) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    server.fail_next(matching("GET", "/log"), ConnectionFailed("no route to host"), times=2)
    told = call("logs", "shop", *follow)
    assert told.stdout == ""
    *lines, last = told.stderr.splitlines()
    assert sorted(lines) == ["shop-0  (no route to host)", "shop-1  (no route to host)"]
    assert last == "error: no logs of cluster prod/shop are available"
    assert told.exit_code == 1


def test_logs_of_instance_without_log_is_no_error(server: InMemoryApiServer) -> None:
    server.load(pod("shop-0-0", "replica"))
    server.fail_next(matching("GET", "/log"), 400)
    told = call("logs", "shop", "--previous")
    assert (told.output, told.exit_code) == ("shop-0  (HTTP 400)\n", 0)


def test_logs_follow_ends_on_closed_pipe(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    for name in ("shop-0-0", "shop-1-0"):
        server.pod_logs[ObjectKey(KEY.namespace, name)] = ["one", "two"]

    def closed(_: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(typer, "echo", closed)
    ended = call("logs", "shop", "--follow")
    assert isinstance(ended.exception, SystemExit)


def test_shell_execs_kubectl_without_password(server: InMemoryApiServer, executed: list[list[str]]) -> None:
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
def test_shell_ignores_lost_pod_with_primary_label(
    server: InMemoryApiServer, executed: list[list[str]], labelled: list[str], ready: list[str], chosen: str
) -> None:
    server.load(*(pod(name, "primary") for name in labelled))
    asyncio.run(set_ready(server, *ready))
    call("psql", "shop")
    assert chosen in executed[0]


def test_shell_prefers_ready_replica(server: InMemoryApiServer, executed: list[list[str]]) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-2-0", "replica"))
    asyncio.run(set_ready(server, "shop-2-0"))
    call("psql", "shop", "--replica")
    assert "shop-2-0" in executed[0]


def test_mysql_shell_rejects_postgresql_cluster(server: InMemoryApiServer, executed: list[list[str]]) -> None:
    metadata = {"name": "blog", "namespace": KEY.namespace}
    server.load({"apiVersion": f"{GROUP}/v1alpha1", "kind": "MySQLCluster", "metadata": metadata, "spec": {}})
    primary = pod("blog-0-0", "primary")
    primary["metadata"]["labels"] |= {CLUSTER_LABEL: "blog"}
    server.load(primary)
    call("mysql", "blog", "--", "-e", "SELECT 1")
    command = ["mysql", "--user=root", "--socket=/run/steersman/mysqld.sock", "--default-character-set=utf8mb4"]
    assert executed[0][-8:] == ["blog-0-0", "--", *command, "-e", "SELECT 1"]
    refused = call("mysql", "shop")
    assert refused.exit_code == 1
    assert "not found" in refused.stderr


def archived(path: Path) -> dict[str, str]:
    """The files of an archive, without the folder that they are in."""
    with tarfile.open(path) as archive:
        files = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_report_contains_everything_but_secrets(server: InMemoryApiServer, tmp_path: Path) -> None:
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
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["a line"]
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


@pytest.mark.parametrize("line", LINES_WITH_SECRETS)
def test_report_redacts_hba_secrets(server: InMemoryApiServer, tmp_path: Path, line: str) -> None:
    """Wherever it stands: in what is declared, in what Patroni and kubectl keep as JSON, and in what servers log."""
    declared = {"postgresql": {"pgHba": [line, "host shop all all reject"]}}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": declared})}
    change = MergePatch({"metadata": {"annotations": applied}, "spec": declared})
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, change))
    told = {"postgresql": {"pg_hba": [line, "host shop all all reject"]}, "ttl": 15}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "shop-config",
            "namespace": KEY.namespace,
            "labels": pod("shop-1-0", "primary")["metadata"]["labels"],
            "annotations": {"config": json.dumps(told), "history": "[[1, 2]]"},
        },
        "data": {"pg_hba.conf": f"{line}\nhost shop all all reject\n"},
    }
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "shop.1", "namespace": KEY.namespace},
        "regarding": {"kind": "PostgreSQLCluster", "name": "shop", "namespace": KEY.namespace},
        "note": f"not taken: {line}",
        "eventTime": "2026-11-21T09:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "a",
        "reason": "R",
        "type": "Normal",
    }
    server.load(pod("shop-1-0", "primary"), config, event)
    log = [
        f'DETAIL:  Connection matched file "/data/pg_hba.conf" line 9: "{line}"',
        json.dumps({"message": "refused", "detail": f'Connection matched line 9: "{line}"'}),
        'LOG:  could not parse RADIUS secret list "hunter2,,hunter2"',
        "the last line",
    ]
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = log
    path = tmp_path / "shop.tar.gz"
    call("report", "shop", "--file", str(path))
    texts = archived(path)
    assert "hunter2" not in "".join(texts.values())
    assert all("=***" in texts[f"{name}.yaml"] for name in ("cluster", "configmaps", "events"))
    kept = yaml.safe_load(texts["configmaps.yaml"])
    shown = json.loads(kept["metadata"]["annotations"]["config"])
    assert shown["ttl"] == 15 and shown["postgresql"]["pg_hba"][1] == "host shop all all reject"
    assert kept["metadata"]["annotations"]["history"] == "[[1, 2]]"
    assert kept["data"]["pg_hba.conf"].endswith("\nhost shop all all reject\n")
    assert texts["logs/instances.txt"].endswith("shop-1  the last line\n")


@pytest.mark.parametrize("link", [False, True], ids=["a file", "a link to one"])
def test_report_file_is_private(server: InMemoryApiServer, tmp_path: Path, link: bool) -> None:
    server.load(pod("shop-1-0", "primary"))
    readable, path = tmp_path / "readable", tmp_path / "shop.tar.gz"
    readable.write_text("before")
    readable.chmod(0o644)
    if link:
        path.symlink_to(readable)
    else:
        readable.rename(path)
    with (readable if link else path).open() as opened:
        assert call("report", "shop", "--file", str(path)).exit_code == 0
        assert opened.read() == "before", "who has opened it before reads what was there"
    assert not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert "cluster.yaml" in archived(path)


@pytest.mark.parametrize("place", ["a folder", "a pipe", "nowhere/shop.tar.gz"])
def test_report_unwritable_path_is_an_error(server: InMemoryApiServer, tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    (tmp_path / "a folder").mkdir()
    os.mkfifo(tmp_path / "a pipe")
    refused = call("report", "shop", "--file", str(path))
    assert refused.exit_code == 2 and str(path) in refused.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a folder", "a pipe"]


def test_report_contains_pooler_and_job_logs(server: InMemoryApiServer, tmp_path: Path) -> None:
    pooler, job = pod("shop-pooler-rw-x2x4z", ""), pod("shop-initial-b5b7c", "")
    for each in (pooler, job):
        del each["metadata"]["labels"][CLUSTER_LABEL]
    server.load(pod("shop-1-0", "primary"), pooler, job)
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["a line"]
    server.pod_logs[ObjectKey(KEY.namespace, "shop-pooler-rw-x2x4z")] = ["closing because: server conn crashed?"]
    server.fail_next(matching("GET", "/shop-initial-b5b7c/log"), ConnectionFailed("no route to host"))
    path = tmp_path / "shop.tar.gz"
    told = call("report", "shop", "--file", str(path))
    assert "without shop-initial-b5b7c in logs/others.txt: no route to host" in told.stderr
    texts = archived(path)
    assert texts["logs/others.txt"] == "shop-pooler-rw-x2x4z  closing because: server conn crashed?\n"
    assert texts["logs/instances.txt"] == "shop-1  a line\n"


def test_report_excludes_release_of_same_name(server: InMemoryApiServer, tmp_path: Path) -> None:
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


def test_report_names_missing_log(server: InMemoryApiServer, tmp_path: Path) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    server.pod_logs[ObjectKey(KEY.namespace, "shop-1-0")] = ["a line"]
    server.fail_next(matching("GET", "/shop-0-0/log"), ConnectionFailed("no route to host"), times=2)
    path = tmp_path / "shop.tar.gz"
    told = call("report", "shop", "--file", str(path))
    assert told.exit_code == 0
    assert "without shop-0 in logs/instances.txt: no route to host" in told.stderr
    texts = archived(path)
    assert yaml.safe_load(texts["missing.yaml"]) == {
        "shop-0 in logs/instances.txt": "no route to host",
        "shop-0 in logs/previous.txt": "no route to host",
    }
    assert texts["logs/instances.txt"] == "shop-1  a line\n"
    assert "kind: Pod" in texts["pods.yaml"]
