"""The kind that fault tests change by the thousand, and its operator, written as a user would write it.

For each ``Beacon`` there is to be one owned ConfigMap whose content follows from the beacon's spec, and a status that
says which generation has been seen. So whatever was missed shows, object by object, in the end.
"""

from __future__ import annotations

import hashlib
from typing import Any

from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Reconciler, Request, Result
from steersman.crd import definition
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, ObjectMetaApply, Resource, Spec, Status, resource


class BeaconSpec(Spec):
    """The light that is wanted."""

    brightness: int = 1
    text: str = ""


class BeaconStatus(Status):
    """The light as it is."""

    fingerprint: str = ""
    """Of the content that the ConfigMap was given."""


@resource(group="faults.example.com", version="v1")
class Beacon(Resource[BeaconSpec, BeaconStatus]):
    """Is seen by its ConfigMap."""


def beacon_definition() -> dict[str, Any]:
    """The CRD. Its ``brightness`` may be a string too: the server lets in what the operator's type does not fit."""
    document = definition(Beacon)
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["brightness"] = {"x-kubernetes-int-or-string": True}
    return document


def beacon(key: ObjectKey, text: str = "", brightness: int = 1) -> Beacon:
    """A beacon to create."""
    return Beacon(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        spec=BeaconSpec(brightness=brightness, text=text),
    )


def content(spec: BeaconSpec) -> dict[str, str]:
    """What the ConfigMap of a beacon with ``spec`` holds."""
    return {"text": spec.text, "brightness": str(spec.brightness), "fingerprint": fingerprint(spec)}


def fingerprint(spec: BeaconSpec) -> str:
    """Sixteen hexadecimal digits that tell one spec from another."""
    return hashlib.sha256(f"{spec.brightness} {spec.text}".encode()).hexdigest()[:16]


class BeaconReconciler(Reconciler[Beacon]):
    """Keeps the ConfigMap and the status of each beacon."""

    async def reconcile(self, request: Request) -> Result:
        beacon = await self.client.get(Beacon, request)
        metadata = ObjectMetaApply(name=request.name, namespace=request.namespace)
        data = content(beacon.spec)
        await self.client.apply(ConfigMapApply(metadata=metadata, data=data), owner=beacon)
        status = BeaconStatus(observed_generation=beacon.metadata.generation, fingerprint=data["fingerprint"])
        await self.client.apply_status(beacon, status)
        return Result()


def setup(manager: Manager, workers: int = 16) -> None:
    """Adds the controller."""
    manager.controller(Beacon).owns(ConfigMap).max_concurrent_reconciles(workers).complete(BeaconReconciler)
