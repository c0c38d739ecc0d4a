"""Images as nodes have pulled them: a tag is given to another one, and a node asks again only where it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from steersman.api.core_v1 import Pod


@dataclass
class PulledImages:
    """Which version the servers of pods are."""

    pushed: dict[str, str] = field(default_factory=dict[str, str])
    """What a registry has now, by the reference."""
    pulled: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """What was pulled: by the reference, and by the pod or, where the node does not ask again, by its volume."""

    def version(self, pod: Pod, default: str) -> str:
        """Of the server in a pod; ``usual`` where nobody pushed its image."""
        server = pod.spec.containers[0]
        asks = server.image_pull_policy == "Always"
        by = server.image or "", pod.metadata.uid if asks else pod.metadata.annotations["volume"]
        return self.pulled.setdefault(by, self.pushed.get(server.image or "", default))
