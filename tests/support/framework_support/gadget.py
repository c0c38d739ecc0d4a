"""The kind that fault tests change by the thousand, and its operator, written as a user would write it.

For each ``Gadget`` there is to be one owned ConfigMap whose content follows from the gadget's spec, and a status that
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


class GadgetSpec(Spec):
    """The light that is wanted."""

    replicas: int = 1
    text: str = ""


class GadgetStatus(Status):
    """The light as it is."""

    fingerprint: str = ""
    """Of the content that the ConfigMap was given."""


@resource(group="faults.example.com", version="v1")
class Gadget(Resource[GadgetSpec, GadgetStatus]):
    """Is seen by its ConfigMap."""


def gadget_crd() -> dict[str, Any]:
    """The CRD. Its ``brightness`` may be a string too: the server lets in what the operator's type does not fit."""
    document = definition(Gadget)
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["brightness"] = {"x-kubernetes-int-or-string": True}
    return document


def gadget(key: ObjectKey, text: str = "", replicas: int = 1) -> Gadget:
    """A gadget to create."""
    return Gadget(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        spec=GadgetSpec(replicas=replicas, text=text),
    )


def config_map_data(spec: GadgetSpec) -> dict[str, str]:
    """What the ConfigMap of a gadget with ``spec`` holds."""
    return {"text": spec.text, "brightness": str(spec.replicas), "fingerprint": fingerprint(spec)}


def fingerprint(spec: GadgetSpec) -> str:
    """Sixteen hexadecimal digits that tell one spec from another."""
    return hashlib.sha256(f"{spec.replicas} {spec.text}".encode()).hexdigest()[:16]


class GadgetReconciler(Reconciler[Gadget]):
    """Keeps the ConfigMap and the status of each gadget."""

    async def reconcile(self, request: Request) -> Result:
        gadget = await self.client.get(Gadget, request)
        metadata = ObjectMetaApply(name=request.name, namespace=request.namespace)
        data = config_map_data(gadget.spec)
        await self.client.apply(ConfigMapApply(metadata=metadata, data=data), owner=gadget)
        status = GadgetStatus(observed_generation=gadget.metadata.generation, fingerprint=data["fingerprint"])
        await self.client.apply_status(gadget, status)
        return Result()


def setup(manager: Manager, workers: int = 16) -> None:
    """Adds the controller."""
    manager.controller(Gadget).owns(ConfigMap).max_concurrent_reconciles(workers).complete(GadgetReconciler)
