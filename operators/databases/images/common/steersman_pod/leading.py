"""How the primary has clients find it: it writes itself into the EndpointSlices of -rw.

It needs nobody's consent but the API server's, so clients find the new primary with the operator away and with the
former one cut off. The order of reads is what makes it safe: first the slice, then who leads, and the write is
only taken if the slice is still as read. Whoever leads later also writes later, and a former leader's late write is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from .api_server import Answer, Request

_GROUP = "databases.steersman.dev"
_LABELS = "app.kubernetes.io"
LEADERSHIP = f"{_GROUP}/leadership"


@dataclass(frozen=True)
class Pod:
    """This pod, as an endpoint says it."""

    name: str
    namespace: str
    uid: str
    node: str
    addresses: tuple[str, ...]

    def endpoints(self, family: str) -> list[dict[str, Any]]:
        """What a slice of this address type holds: this pod, or nobody if it has no such address."""
        addresses = [one for one in self.addresses if (":" in one) == (family == "IPv6")]
        target = {"kind": "Pod", "name": self.name, "namespace": self.namespace, "uid": self.uid}
        conditions = {"ready": True, "serving": True, "terminating": False}
        return [
            {"addresses": [one], "conditions": conditions, "nodeName": self.node, "targetRef": target}
            for one in addresses[:1]
        ]


@dataclass(frozen=True)
class Owner:
    """The cluster that this pod is of."""

    kind: str
    engine: str
    name: str

    def has(self, metadata: Mapping[str, Any]) -> bool:
        """Whether what bears this was made for the cluster, and not by somebody else under a name that we may write.

        Labels count where no controller is named: whoever lost only that is served on with the operator away.
        """
        for one in metadata.get("ownerReferences") or ():
            if one.get("controller"):
                group = one["apiVersion"].partition("/")[0]
                return (group, one["kind"], one["name"]) == (_GROUP, self.kind, self.name)
        labels: Mapping[str, str] = metadata.get("labels") or {}
        own = {"name": self.engine, "instance": self.name, "managed-by": "steersman-databases"}
        return all(labels.get(f"{_LABELS}/{key}") == value for key, value in own.items())


def this_pod(environment: Mapping[str, str]) -> Pod:
    """The pod that the environment tells of."""
    return Pod(
        name=environment["POD_NAME"],
        namespace=environment["POD_NAMESPACE"],
        uid=environment["POD_UID"],
        node=environment["NODE_NAME"],
        addresses=tuple(environment["POD_IPS"].split(",")),
    )


def take(
    pod: Pod,
    owner: Owner,
    slice_path: str,
    leader_path: str,
    leadership: Callable[[Mapping[str, Any]], str | None],
) -> Generator[Request, Answer, None]:
    """The requests that make a slice this pod's; ends at once if another pod leads or it is not the cluster's.

    Answers are of status 200, 404 or 409; others are the sender's to deal with.

    Args:
        leadership: of the object at `leader_path`, what tells this leadership of the pod from each other one; None
            where another pod leads. A write that changes nothing leaves the slice's version as it was, and a former
            leader's would still fit it: so each leadership writes something of its own.
    """
    while True:
        found = yield Request(slice_path)
        leader = yield Request(leader_path)
        if found.status == 404 or leader.status == 404:
            return  # Nothing to be written to: the operator fills the slices that it makes.
        if not owner.has(found.body["metadata"]):
            return  # The operator tells of it, and makes ours when it is gone.
        own = leadership(leader.body)
        if own is None:
            return
        answer = yield Request(
            slice_path,
            {
                "metadata": {
                    "resourceVersion": found.body["metadata"]["resourceVersion"],
                    "annotations": {LEADERSHIP: own},
                },
                "endpoints": pod.endpoints(found.body["addressType"]),
            },
        )
        if answer.status != 409:
            return
