"""Resource usage of the operator's pod, from the kubelet."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from devcluster.errors import DevclusterError, NotReady
from devcluster.operator import DEPLOYMENT, NAMESPACE
from devcluster.target import Target, wait_until

_MIB = 2**20
# The kubelet samples its containers every 10 to 15 seconds.
_MAX_SAMPLE_AGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Resource usage up to a timestamp.

    Attributes:
        at: Unix timestamp in seconds.
        cpu: CPU seconds since the container started.
        memory: resident memory in MiB.
        container: start time of the container. A new container resets ``cpu``.
    """

    timestamp: float
    cpu: float
    memory: float
    container: str

    def cpu_since(self, before: ResourceUsage) -> float:
        """Return the CPU seconds since then. Raises DevclusterError after an operator restart."""
        if self.container != before.container:
            raise DevclusterError(f"the operator restarted at {self.container} during the measurement")
        return self.cpu - before.cpu


@dataclass(frozen=True)
class OperatorPod:
    """The only pod of the operator.

    Source: "Node metrics data" in the Kubernetes documentation (the kubelet's Summary API).
    """

    target: Target

    def usage(self) -> ResourceUsage:
        """Return a usage sampled after this call. Raises NotReady without data."""
        requested_at = time.time()

        def fresh() -> ResourceUsage | None:
            found = self._read_summary()
            return found if found is not None and found.timestamp > requested_at else None

        return wait_until("the kubelet has measured the operator", fresh, seconds=_MAX_SAMPLE_AGE_SECONDS, interval=1)

    def latest(self) -> ResourceUsage:
        """Return the latest usage sample. Raises NotReady without data."""
        found = self._read_summary()
        if found is None:
            raise NotReady("the kubelet has not measured the operator yet")
        return found

    def _read_summary(self) -> ResourceUsage | None:
        selector = f"--selector=app.kubernetes.io/name={DEPLOYMENT}"
        pods: list[dict[str, Any]] = (self.target.get("pods", f"--namespace={NAMESPACE}", selector) or {})["items"]
        running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if len(running) != 1:
            return None
        node, name = running[0]["spec"]["nodeName"], running[0]["metadata"]["name"]
        summary = json.loads(self.target.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        for pod in summary["pods"]:
            if (pod["podRef"]["namespace"], pod["podRef"]["name"]) == (NAMESPACE, name):
                return next((parse_usage(container) for container in pod["containers"]), None)
        return None


def parse_usage(container: dict[str, Any]) -> ResourceUsage | None:
    """Parse a container's usage from the summary; None if it is incomplete."""
    cpu, memory = container.get("cpu", {}), container.get("memory", {})
    if "usageCoreNanoSeconds" not in cpu or "workingSetBytes" not in memory:
        return None
    timestamp = datetime.fromisoformat(cpu["time"]).timestamp()
    resident = memory.get("rssBytes", memory["workingSetBytes"])
    return ResourceUsage(timestamp, cpu["usageCoreNanoSeconds"] / 1e9, resident / _MIB, container["startTime"])
