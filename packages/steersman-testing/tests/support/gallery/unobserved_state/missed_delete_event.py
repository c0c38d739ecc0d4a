"""A mirror remains if the operator misses its Service's deletion.

After submariner-io/lighthouse#1416, and similar to microsoft/retina#2708: for each Service, the agent created an
object in another place, and deleted it on the delete event. If the Service was deleted while the agent was down, its
object remained. Clients were sent to addresses without a server.

Shown by: the process is down during the deletion of the Service, or ends before it deletes the mirror.

An owner reference cannot help, since it cannot cross namespaces. The twin also watches the mirrors: after a start it
reconciles each of them and finds those without a Service.
"""

from __future__ import annotations

from contextlib import suppress

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import OWNER_LABEL, key
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Service
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import ObjectKey
from steersman_testing.simulation import World

MIRRORS = "kube-public"
"""Namespace of the mirrors."""


class MirrorReconciler(RequestReconciler[Service]):
    async def reconcile(self, request: Request) -> Result:
        service = await self.client.get_or_none(Service, request)
        if service is None:
            return await self.delete_mirror(request)
        metadata = meta.ObjectMeta(name=request.name, namespace=MIRRORS, labels={OWNER_LABEL: request.name})
        await self.client.apply(core.ConfigMap(metadata=metadata, data={"address": service.spec.cluster_ip or ""}))
        return Result()

    async def delete_mirror(self, request: Request) -> Result:
        mirror = await self.client.get_or_none(ConfigMap, Request(MIRRORS, request.name))
        if mirror is not None and OWNER_LABEL in mirror.metadata.labels:
            with suppress(NotFound):
                await self.client.delete(ConfigMap, mirror.key, uid=mirror.metadata.uid)
        return Result()


def requests_for_source(mirror: ConfigMap) -> list[ObjectKey]:
    """Return the Service that a ConfigMap mirrors, if it is a mirror."""
    name = mirror.metadata.labels.get(OWNER_LABEL)
    return [key(name)] if name and mirror.metadata.namespace == MIRRORS else []


def faulty(manager: Manager, _: object) -> None:
    """Register the operator that reacts only to events of Services."""
    watching = manager.controller(Service).watches(ConfigMap, lambda _: ())
    watching.needs(ConfigMap, "create", "patch", "delete").complete(MirrorReconciler)


def corrected(manager: Manager, _: object) -> None:
    """Register the twin, which also reacts to events of mirrors."""
    watching = manager.controller(Service).watches(ConfigMap, requests_for_source)
    watching.needs(ConfigMap, "create", "patch", "delete").complete(MirrorReconciler)


async def scenario(world: World[NoExternalSystem]) -> None:
    """Create two Services, and delete one."""
    for name, address in (("kept", "10.0.0.10"), ("spare", "10.0.0.2")):
        metadata = meta.ObjectMeta(name=name, namespace=key(name).namespace)
        spec = core.ServiceSpec(cluster_ip=address, ports=[core.ServicePort(port=80)])
        await world.client.create(core.Service(metadata=metadata, spec=spec))
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
