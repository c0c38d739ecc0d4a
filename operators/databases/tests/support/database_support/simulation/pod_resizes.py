"""In-place resizes on the nodes of a cluster in memory, as kubelets of Kubernetes 1.36 report them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from steersman.api.core_v1 import Pod
from steersman.client import Client, MergePatch
from steersman.errors import NotFound
from steersman.meta import to_builtins
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_testing import InMemoryApiServer

_RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


@dataclass
class PodResizes:
    """State of the nodes.

    Attributes:
        supported: nodes report the resources of containers.
        blocked: by pod, type, reason and message of the condition of a resize that is not applied.
    """

    supported: bool = True
    blocked: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])

    async def sync(self, server: InMemoryApiServer, client: Client) -> None:
        """Apply the resources of all pods that may be resized."""
        for pod in server.read_all(Pod) if self.supported else ():
            if INSTANCE_LABEL in pod.metadata.labels and pod.status.container_statuses:
                await self._sync_pod(client, pod)

    async def _sync_pod(self, client: Client, pod: Pod) -> None:
        status, desired = pod.status.container_statuses[0], pod.spec.containers[0].resources
        if status.state.running is None:
            return
        blocked = self.blocked.get(pod.metadata.name) if status.resources not in (None, desired) else None
        running = desired if blocked is None or status.resources is None else status.resources
        generation = pod.metadata.generation
        found = {
            (c.type, c.reason, c.message, c.observed_generation)
            for c in pod.status.conditions
            if c.type in _RESIZE_CONDITIONS
        }
        expected: set[tuple[str, str | None, str | None, int | None]] = (
            set() if blocked is None else {(*blocked, generation)}
        )
        if (status.resources, pod.status.observed_generation, found) == (running, generation, expected):
            return
        conditions: list[dict[str, Any]] = [
            to_builtins(c) for c in pod.status.conditions if c.type not in _RESIZE_CONDITIONS
        ]
        names = ("type", "reason", "message", "observedGeneration")
        conditions += [{**dict(zip(names, each, strict=True)), "status": "True"} for each in expected]
        body = {
            "observedGeneration": generation,
            "conditions": conditions,
            "containerStatuses": [{**to_builtins(status), "resources": to_builtins(running)}],
        }
        with suppress(NotFound):
            await client.patch(Pod, pod.key, MergePatch({"status": body}), subresource="status")


def conditions_with_ready(pod: Pod, *, ready: bool) -> list[dict[str, Any]]:
    """Return the conditions of a pod with another status of Ready."""
    others = [to_builtins(c) for c in pod.status.conditions if c.type != "Ready"]
    return [*others, {"type": "Ready", "status": "True" if ready else "False"}]
