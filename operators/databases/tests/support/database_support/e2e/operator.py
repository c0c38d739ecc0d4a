"""The pod of the database operator, to be killed, replaced and taken away."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from devcluster.operator import DEPLOYMENT, NAMESPACE
from devcluster.process import Process
from devcluster.target import Target, wait_until

_SCOPE = f"--namespace={NAMESPACE}"
_SELECTOR = f"--selector=app.kubernetes.io/name={DEPLOYMENT}"


def running(cluster: Target) -> dict[str, str]:
    """Name, container and node of the pod that runs and is not on its way out; empty where there is none."""
    pods = json.loads(cluster.kubectl("get", "pods", _SCOPE, _SELECTOR, "--output=json"))
    for pod in pods["items"]:
        statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or [{}]
        if "deletionTimestamp" not in pod["metadata"] and "running" in statuses[0].get("state", {}):
            container = statuses[0]["containerID"].rpartition("/")[2]
            return {"name": pod["metadata"]["name"], "container": container, "node": pod["spec"]["nodeName"]}
    return {}


def kill(cluster: Target) -> None:
    """SIGKILL to the operator's process, then its pod out of the way: restarts in place back off for minutes."""
    pod = wait_until("the operator runs", lambda: running(cluster) or None, seconds=90)
    if cluster.is_devcluster:
        for process in _processes_in(pod["container"]):
            process.kill()
    cluster.kubectl("delete", "pod", pod["name"], _SCOPE, "--force", "--grace-period=0", "--wait=false")


def replace(cluster: Target) -> dict[str, str]:
    """Another pod for the operator, whose containers have not ended yet."""
    cluster.kubectl("delete", "pod", _SELECTOR, _SCOPE, seconds=120)
    return wait_until("the operator runs", lambda: running(cluster) or None, seconds=90)


@contextmanager
def operator_stopped(cluster: Target) -> Generator[None]:
    """The operator is scaled to nothing while the block runs, and serves again after it."""
    try:
        cluster.kubectl("scale", f"deployment/{DEPLOYMENT}", _SCOPE, "--replicas=0")
        cluster.kubectl("wait", "pod", _SELECTOR, _SCOPE, "--for=delete", "--timeout=90s", seconds=100)
        yield
    finally:
        cluster.kubectl("scale", f"deployment/{DEPLOYMENT}", _SCOPE, "--replicas=1")
        rolled_out(cluster)


def operator_running(_cluster: Target) -> AbstractContextManager[None]:
    """The operator goes on."""
    return nullcontext()


OperatorPresence = Callable[[Target], AbstractContextManager[None]]
"""`present` or `away`."""
WITH_AND_WITHOUT_OPERATOR = pytest.mark.parametrize(
    "operator",
    [
        pytest.param(operator_running, id="with-the-operator"),
        pytest.param(operator_stopped, id="without-the-operator", marks=pytest.mark.disruptive),
    ],
)
"""Of a test that is carried out with the operator, and without it."""


def rolled_out(cluster: Target) -> None:
    """Waits until the declared operator serves, and no other."""
    cluster.kubectl("rollout", "status", f"deployment/{DEPLOYMENT}", _SCOPE, "--timeout=180s", seconds=200)


def _processes_in(container: str) -> list[Process]:
    found: list[Process] = []
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            inside = container in cgroup.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = Process.of(int(cgroup.parent.name)) if inside else None
        if process is not None:
            found.append(process)
    return found
