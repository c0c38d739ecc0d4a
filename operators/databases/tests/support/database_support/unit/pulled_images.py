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

    contract: int | None = 1
    """Contract of all images that start from now on. None as in images before the number."""
    contracts: dict[str, int | None] = field(default_factory=dict[str, int | None])
    """Contract of the images that run, by the pod."""

    def reported_contract(self, pod: Pod) -> dict[str, int]:
        """Return the report of a pod about its contract."""
        contract = self.contracts.setdefault(pod.metadata.uid, self.contract)
        return {} if contract is None else {"contract": contract}

    def version(self, pod: Pod, default: str) -> str:
        """Of the server in a pod; ``usual`` where nobody pushed its image."""
        server = pod.spec.containers[0]
        asks = server.image_pull_policy == "Always"
        by = server.image or "", pod.metadata.uid if asks else pod.metadata.annotations["volume"]
        return self.pulled.setdefault(by, self.pushed.get(server.image or "", default))
