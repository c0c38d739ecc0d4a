"""Endpoints of the Service -rw, written by the primary itself.

It depends only on the API server, so clients find a new primary without the operator and with a partitioned previous
primary. The order of reads makes it safe: the slice is read before the leader, and the write fails if the slice has
changed. A later leader also writes later, so a late write of a previous leader fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from .api_client import ApiRequest, ApiResponse

_GROUP = "databases.steersman.dev"
_LABELS = "app.kubernetes.io"
LEADER_TERM_ANNOTATION = f"{_GROUP}/leader-term"


@dataclass(frozen=True)
class PodIdentity:
    """This pod as an endpoint."""

    name: str
    namespace: str
    uid: str
    node: str
    addresses: tuple[str, ...]

    def endpoints(self, family: str) -> list[dict[str, Any]]:
        """Return the endpoints for this address family: this pod, or none."""
        addresses = [one for one in self.addresses if (":" in one) == (family == "IPv6")]
        target = {"kind": "Pod", "name": self.name, "namespace": self.namespace, "uid": self.uid}
        conditions = {"ready": True, "serving": True, "terminating": False}
        return [
            {"addresses": [one], "conditions": conditions, "nodeName": self.node, "targetRef": target}
            for one in addresses[:1]
        ]


@dataclass(frozen=True)
class ClusterIdentity:
    """The cluster of this pod."""

    kind: str
    engine: str
    name: str

    def owns(self, metadata: Mapping[str, Any]) -> bool:
        """Return True if an object with this metadata belongs to the cluster.

        A foreign object may have a name that the pod may write. Labels count if there is no controller: clients of a
        cluster whose slice lost it are served without the operator, too.
        """
        for one in metadata.get("ownerReferences") or ():
            if one.get("controller"):
                group = one["apiVersion"].partition("/")[0]
                return (group, one["kind"], one["name"]) == (_GROUP, self.kind, self.name)
        labels: Mapping[str, str] = metadata.get("labels") or {}
        own_labels = {"name": self.engine, "instance": self.name, "managed-by": "steersman-databases"}
        return all(labels.get(f"{_LABELS}/{key}") == value for key, value in own_labels.items())


def this_pod(environment: Mapping[str, str]) -> PodIdentity:
    """Return the pod from the environment."""
    return PodIdentity(
        name=environment["POD_NAME"],
        namespace=environment["POD_NAMESPACE"],
        uid=environment["POD_UID"],
        node=environment["NODE_NAME"],
        addresses=tuple(environment["POD_IPS"].split(",")),
    )


def claim_slice(
    pod: PodIdentity,
    owner: ClusterIdentity,
    slice_path: str,
    leader_path: str,
    leader_term_of: Callable[[Mapping[str, Any]], str | None],
) -> Generator[ApiRequest, ApiResponse, None]:
    """Yield the requests that make this pod the endpoint of a slice.

    It ends at once if another pod leads, or the slice is not the cluster's. Responses have the status 200, 404 or
    409.
    The sender handles others.

    Args:
        leader_term_of: returns a unique identifier of this leadership from the object at `leader_path`, or None if
            another pod leads. A write without a change would keep the version of the slice, so that the late write
            of a
            previous leader would still match. So each leadership writes its own identifier.
    """
    while True:
        found = yield ApiRequest(slice_path)
        leader = yield ApiRequest(leader_path)
        if found.status == 404 or leader.status == 404:
            return  # The object does not exist. The operator fills the slices that it creates.
        if not owner.owns(found.body["metadata"]):
            return  # The operator reports it, and creates its own when this one is gone.
        endpoints = leader_term_of(leader.body)
        if endpoints is None:
            return
        answer = yield ApiRequest(
            slice_path,
            {
                "metadata": {
                    "resourceVersion": found.body["metadata"]["resourceVersion"],
                    "annotations": {LEADER_TERM_ANNOTATION: endpoints},
                },
                "endpoints": pod.endpoints(found.body["addressType"]),
            },
        )
        if answer.status != 409:
            return
