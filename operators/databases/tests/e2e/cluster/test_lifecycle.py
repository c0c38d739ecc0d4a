"""A cluster of real servers from apply to deletion: three instances, a switchover, fewer, gone with its data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from devcluster import layout
from devcluster.target import Target, wait_until

NAME = "orders"
KINDS = "statefulsets,pods,pvc,secrets,services,configmaps,endpointslices,roles,serviceaccounts"


class Cluster:
    """The ``PostgreSQLCluster`` of a test as its user sees it."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._target = target
        self._namespace = f"--namespace={namespace}"
        self._manifest = {
            "apiVersion": "databases.steersman.dev/v1alpha1",
            "kind": "PostgreSQLCluster",
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {
                "instances": 3,
                "deletionPolicy": "Delete",
                "storage": {"size": "512Mi"},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "postgresql": {"parameters": {"shared_buffers": "32MB", "max_connections": "40"}},
            },
        }

    def apply(self) -> None:
        self._target.apply(yaml.safe_dump(self._manifest))

    def kubectl(self, *arguments: str, seconds: float = 60) -> str:
        return self._target.kubectl(*arguments, self._namespace, seconds=seconds)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self._target.get(kind, name, self._namespace) or {}

    @property
    def status(self) -> dict[str, Any]:
        return self.get("postgresqlcluster", NAME).get("status", {})

    def leads(self) -> list[str]:
        """The pods that the Service -rw leads to."""
        endpoints: list[dict[str, Any]] = (
            self.get("endpointslice", f"{NAME}-rw-ipv{layout.IP_FAMILY}").get("endpoints") or []
        )
        return [e["targetRef"]["name"] for e in endpoints]

    def ready(self, instances: int) -> bool:
        found = self.get("postgresqlcluster", NAME)
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status.get("phase") == "Ready" and status.get("readyInstances") == instances

    def until(self, what: str, probe: Callable[[], object], seconds: float = 180) -> None:
        wait_until(what, probe, seconds=seconds)


@pytest.mark.requirement("overview/level-1-install", "overview/level-3-lifecycle", "pattern/changes")
def test_cluster_create_switchover_scale_down_delete(cluster: Target, namespace: str) -> None:
    orders = Cluster(cluster, namespace)
    orders.apply()
    orders.until("three are ready", lambda: orders.ready(3), 300)
    assert orders.status["primary"] == f"{NAME}-0"
    assert orders.leads() == [f"{NAME}-0-0"]

    orders.kubectl("annotate", "pg", NAME, "databases.steersman.dev/switchover=any")
    orders.until("it was switched", lambda: orders.status.get("lastSwitchover", {}).get("outcome") == "Succeeded")
    primary = orders.status["primary"]
    assert primary in (f"{NAME}-1", f"{NAME}-2")
    assert orders.leads() == [f"{primary}-0"]
    orders.until("three are ready", lambda: orders.ready(3))

    orders.kubectl("scale", "pg", NAME, "--replicas=2")
    orders.until("two are ready", lambda: orders.ready(2))
    pods = json.loads(orders.kubectl("get", "pods", "--output=json"))["items"]
    assert f"{primary}-0" in [p["metadata"]["name"] for p in pods], "the primary stays"

    orders.kubectl("delete", "pg", NAME, "--timeout=170s", seconds=180)
    # What is owned is collected by Kubernetes, after it.
    orders.until("nothing is left", lambda: NAME not in orders.kubectl("get", KINDS, "--output=name"), 60)
