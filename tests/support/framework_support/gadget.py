"""Gadget resource and operator program of the fault tests.

The operator maintains one ConfigMap per ``Gadget`` and a status with the observed generation. A missed event shows in
both. Run it with ``python gadget.py --kubeconfig FILE --namespace NAME``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from typing import Any

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import connect, load_config
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import AlreadyOwned
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, Resource, Spec, Status, resource
from steersman.observability.logging import configure_logging
from steersman_manifests.crd import definition


class GadgetSpec(Spec):
    """Desired state."""

    replicas: int = 1
    text: str = ""


class GadgetStatus(Status):
    """Observed state."""

    fingerprint: str = ""
    """Fingerprint of the content of the ConfigMap."""


@resource(group="faults.example.com", version="v1")
class Gadget(Resource[GadgetSpec, GadgetStatus]):
    """Object with one ConfigMap."""


def gadget_crd() -> dict[str, Any]:
    """The CRD. Its ``replicas`` may also be a string, which the operator cannot decode."""
    document = definition(Gadget)
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicas"] = {"x-kubernetes-int-or-string": True}
    return document


def gadget(key: ObjectKey, text: str = "", replicas: int = 1) -> Gadget:
    """Create a gadget object."""
    return Gadget(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        spec=GadgetSpec(replicas=replicas, text=text),
    )


def config_map_data(spec: GadgetSpec) -> dict[str, str]:
    """Expected data of the ConfigMap of a gadget."""
    return {"text": spec.text, "replicas": str(spec.replicas), "fingerprint": fingerprint(spec)}


def fingerprint(spec: GadgetSpec) -> str:
    """Sixteen hexadecimal digits of the hash of a spec."""
    return hashlib.sha256(f"{spec.replicas} {spec.text}".encode()).hexdigest()[:16]


class GadgetReconciler(RequestReconciler[Gadget]):
    """Maintains the ConfigMap and the status of each gadget."""

    async def reconcile(self, request: Request) -> Result:
        gadget = await self.client.get(Gadget, request)
        metadata = meta.ObjectMeta(name=request.name, namespace=request.namespace)
        data = config_map_data(gadget.spec)
        config_map = core.ConfigMap(metadata=metadata, data=data)
        try:
            await self.client.apply(config_map, owner=gadget)
        except AlreadyOwned:
            # The test servers have no garbage collector for the ConfigMap of a previous gadget.
            found = await self.client.get_or_none(ConfigMap, config_map.key)
            if found is not None:
                await self.client.delete(ConfigMap, found.key, uid=found.metadata.uid)
            await self.client.apply(config_map, owner=gadget)
        status = GadgetStatus(observed_generation=gadget.metadata.generation, fingerprint=data["fingerprint"])
        await self.client.apply_status(gadget, status)
        return Result()


def setup(manager: Manager, workers: int = 16) -> None:
    """Register the controller."""
    manager.controller(Gadget).owns(ConfigMap).needs(ConfigMap, "delete").max_concurrent_reconciles(workers).complete(
        GadgetReconciler
    )


async def run(arguments: argparse.Namespace) -> None:
    """Run the operator until SIGTERM."""
    lease: float = arguments.lease
    async with connect(load_config(arguments.kubeconfig)) as transport:
        options = ManagerOptions(
            name="gadgets",
            instance=arguments.instance,
            namespaces=(arguments.namespace,),
            leader_election=_election(lease, arguments.namespace) if lease else None,
            metrics_bind_address="127.0.0.1:0",
        )
        manager = Manager(transport, options)
        setup(manager)
        await manager.run_until_signalled()


def _election(lease: float, namespace: str) -> LeaderElection:
    """Leader election with the default ratios of 15, 10 and 2 seconds."""
    return LeaderElection(
        name="gadgets",
        namespace=namespace,
        lease_duration=round(lease),
        renew_deadline=lease * 2 / 3,
        retry_period=lease * 2 / 15,
    )


def main() -> None:
    """Parse the arguments and run the operator."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--instance", default="gadgets-0")
    parser.add_argument("--lease", type=float, default=0.0, help="lease duration in seconds; enables leader election")
    configure_logging("info")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
