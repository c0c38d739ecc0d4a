"""``kubectl steersman`` against a server in memory with one cluster."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from steersman.api.core_v1 import Pod
from steersman.client import Client, ClusterConfig, MergePatch, Transport
from steersman.meta import ObjectKey
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.kubectl import command
from steersman_databases.kubectl.app import app
from steersman_testing import InMemoryApiServer

KEY = ObjectKey("prod", "shop")
GROUP = "databases.steersman.dev"

MEMBERS: list[dict[str, Any]] = [
    {
        "name": "shop-0",
        "role": "Replica",
        "state": "streaming",
        "node": "node-1",
        "ready": True,
        "lagBytes": 2_621_440,
        "timeline": 4,
    },
    {"name": "shop-1", "role": "Primary", "state": "running", "node": "node-2", "ready": True, "timeline": 4},
    {"name": "shop-2", "role": "Replica", "state": "stopped", "node": "node-3", "ready": False, "fenced": True},
]
STATUS: dict[str, Any] = {
    "phase": "Degraded",
    "instances": 3,
    "readyInstances": 2,
    "primary": "shop-1",
    "timeline": 4,
    "version": "17.5",
    "image": "steersman.dev/postgresql:17",
    "availableImage": "steersman.dev/postgresql:17.6",
    "members": MEMBERS,
    "lastSwitchover": {
        "time": "2026-11-20T10:00:00Z",
        "former": "shop-0",
        "to": "shop-1",
        "outcome": "Succeeded",
    },
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "InstanceNotReady",
            "message": "shop-2 does not take connections",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        },
        {
            "type": "Synchronous",
            "status": "False",
            "reason": "NoSynchronousStandby",
            "message": "no replica is a synchronous standby. Check the replicas in status.members",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        },
        {
            "type": "Available",
            "status": "True",
            "reason": "PrimaryAvailable",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        },
    ],
}


@dataclass
class PluginServer:
    """Whom the commands act as: the administrator, unless a user is named."""

    server: InMemoryApiServer
    user: str = ""


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    """A server with one cluster, which every command reaches."""
    found = InMemoryApiServer()
    found.register(Backup, BackupStore, PostgreSQLCluster, MySQLCluster, Database, DatabaseUser, Restore)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEY.namespace}}
    cluster = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PostgreSQLCluster",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"instances": 3},
    }
    found.load(namespace, cluster)
    asyncio.run(set_status(found, STATUS))

    reached = PluginServer(found)

    @asynccontextmanager
    async def connect(config: ClusterConfig) -> AsyncGenerator[Transport, None]:
        yield found.as_user(reached.user) if reached.user else found

    def load_config(path: str | None, *, context: str | None) -> ClusterConfig:
        return ClusterConfig(server="https://example.com", namespace=KEY.namespace)

    monkeypatch.setattr(command, "connect", connect)
    monkeypatch.setattr(command, "load_config", load_config)
    return reached


@pytest.fixture
def server(reached: PluginServer) -> InMemoryApiServer:
    """That server, for the administrator."""
    return reached.server


async def set_status(server: InMemoryApiServer, status: dict[str, Any]) -> None:
    await Client(server).patch(PostgreSQLCluster, KEY, MergePatch({"status": status}), subresource="status")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def pod(name: str, role: str) -> dict[str, Any]:
    labels = {
        f"{GROUP}/cluster": "shop",
        f"{GROUP}/role": role,
        "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/managed-by": "steersman-databases",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": KEY.namespace, "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "server", "image": "i"}]},
    }


async def set_ready(server: InMemoryApiServer, *names: str) -> None:
    """As the kubelet does."""
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for name in names:
        await Client(server).patch(Pod, ObjectKey(KEY.namespace, name), MergePatch(ready), subresource="status")


@dataclass
class PlayedExec:
    """Kubectl exec without a pod.

    `responses` are the outputs, completed processes or exceptions, in order. `by_pod` has those of a pod, which
    come first.
    """

    responses: list[Any] = field(default_factory=list[Any])
    by_pod: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    commands: list[list[str]] = field(default_factory=list[list[str]])

    def run(self, command: list[str], **_: Any) -> Any:
        self.commands.append(command)
        response = (self.by_pod.get(self.pod_of(command)) or self.responses).pop(0)
        if isinstance(response, BaseException):
            raise response
        return subprocess.CompletedProcess(command, 0, response, "") if isinstance(response, str) else response

    @staticmethod
    def pod_of(command: list[str]) -> str:
        return command[command.index("--") - 1]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> PlayedExec:
    played = PlayedExec()
    monkeypatch.setattr(subprocess, "run", played.run)
    return played
