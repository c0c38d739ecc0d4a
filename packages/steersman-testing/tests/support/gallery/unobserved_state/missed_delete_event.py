"""A mirror is deleted when its Service is *told* to be deleted. What is deleted while nobody listens stays.

After submariner-io/lighthouse#1416, and the same in microsoft/retina#2708: for each Service the agent kept an object
elsewhere and deleted it on the Service's deletion. A Service that was deleted while the agent was not running left
its object behind, and clients were sent to addresses that nobody answered.

Shown by: the process is away when the Service is deleted, or ends before it has deleted the mirror.

An owner reference is no help, as it cannot reach into another namespace. The twin watches the mirrors as well: when
it starts it looks at each, and finds that there is no Service for it.
"""

from __future__ import annotations

from contextlib import suppress

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import OWNER_LABEL, key
from steersman.api.apply.core_v1 import ConfigMapApply, ServiceApply, ServicePortApply, ServiceSpecApply
from steersman.api.core_v1 import ConfigMap, Service
from steersman.controller import Reconciler, Request, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import ObjectMetaApply
from steersman_testing.simulation import World

MIRRORS = "kube-public"
"""The namespace of the mirrors."""


class MirrorReconciler(Reconciler[Service]):
    async def reconcile(self, request: Request) -> Result:
        service = await self.client.get_or_none(Service, request)
        if service is None:
            return await self.delete_mirror(request)
        metadata = ObjectMetaApply(name=request.name, namespace=MIRRORS, labels={OWNER_LABEL: request.name})
        await self.client.apply(ConfigMapApply(metadata=metadata, data={"address": service.spec.cluster_ip or ""}))
        return Result()

    async def delete_mirror(self, request: Request) -> Result:
        mirror = await self.client.get_or_none(ConfigMap, Request(MIRRORS, request.name))
        if mirror is not None and OWNER_LABEL in mirror.metadata.labels:
            with suppress(NotFound):
                await self.client.delete(ConfigMap, mirror.key, uid=mirror.metadata.uid)
        return Result()


def requests_for_source(mirror: ConfigMap) -> list[Request]:
    """The Service that a ConfigMap mirrors, if it is a mirror."""
    name = mirror.metadata.labels.get(OWNER_LABEL)
    return [key(name)] if name and mirror.metadata.namespace == MIRRORS else []


def faulty(manager: Manager, _: object) -> None:
    """Gives a manager the operator that acts on news of Services only."""
    watching = manager.controller(Service).watches(ConfigMap, lambda _: ())
    watching.rbac(ConfigMap, "create", "patch", "delete").complete(MirrorReconciler)


def corrected(manager: Manager, _: object) -> None:
    """Gives a manager the twin, which looks at the mirrors as well."""
    watching = manager.controller(Service).watches(ConfigMap, requests_for_source)
    watching.rbac(ConfigMap, "create", "patch", "delete").complete(MirrorReconciler)


async def scenario(world: World[NoExternalSystem]) -> None:
    """Two Services are made, one is deleted."""
    for name, address in (("kept", "10.0.0.10"), ("spare", "10.0.0.2")):
        metadata = ObjectMetaApply(name=name, namespace=key(name).namespace)
        spec = ServiceSpecApply(cluster_ip=address, ports=[ServicePortApply(port=80)])
        await world.client.create(ServiceApply(metadata=metadata, spec=spec))
    await world.settle()
    await world.client.delete(Service, key("spare"))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """One mirror is left."""
    mirrors = [found.metadata.name for found in world.read_all(ConfigMap, MIRRORS) if requests_for_source(found)]
    assert mirrors == ["kept"]


BUG_CASE = BugCase(
    faulty=faulty,
    corrected=corrected,
    kinds=(),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the process is killed before call 3",
        "DELETE configmaps kube-public/spare  killed before the request was sent",
        "the operator is restarted",
        "wrong      ConfigMap kube-public/spare exists, but is not expected",
        "replay='crash-before:3'",
    ),
)
