"""What the operator's pod uses, as the kubelet that runs it says."""

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
# The kubelet looks at its containers every 10 to 15 s.
_MAX_SAMPLE_AGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What was used up to a moment.

    Attributes:
        at: that moment, in seconds of the epoch.
        cpu: seconds of processor time since the container began.
        memory: resident, in MiB.
        container: when the container began; another one counts from zero.
    """

    timestamp: float
    cpu: float
    memory: float
    container: str

    def cpu_since(self, before: ResourceUsage) -> float:
        """Seconds of processor time since then. Raises DevclusterError: the operator was restarted in between."""
        if self.container != before.container:
            raise DevclusterError(f"the operator was restarted at {self.container}, while it was measured")
        return self.cpu - before.cpu


@dataclass(frozen=True)
class OperatorPod:
    """The one pod of the operator.

    Source: "Node metrics data" in the Kubernetes documentation (the kubelet's Summary API).
    """

    target: Target

    def usage(self) -> ResourceUsage:
        """What it has used, measured after this was called. Raises NotReady: the kubelet does not say."""
        requested_at = time.time()

        def fresh() -> ResourceUsage | None:
            found = self._read_summary()
            return found if found is not None and found.timestamp > requested_at else None

        return wait_until("the kubelet has measured the operator", fresh, seconds=_MAX_SAMPLE_AGE_SECONDS, interval=1)

    def latest(self) -> ResourceUsage:
        """What it had used when the kubelet last measured. Raises NotReady: it never did."""
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
    """What a container's entry of the summary says; None where it says too little yet."""
    cpu, memory = container.get("cpu", {}), container.get("memory", {})
    if "usageCoreNanoSeconds" not in cpu or "workingSetBytes" not in memory:
        return None
    timestamp = datetime.fromisoformat(cpu["time"]).timestamp()
    resident = memory.get("rssBytes", memory["workingSetBytes"])
    return ResourceUsage(timestamp, cpu["usageCoreNanoSeconds"] / 1e9, resident / _MIB, container["startTime"])
