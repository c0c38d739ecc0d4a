"""Where -rw leads: the primary writes that itself; the operator, where a slice was deleted or nobody serves."""

from __future__ import annotations

from steersman.api.core_v1 import Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman.errors import Conflict
from steersman.meta import ObjectKey
from steersman_databases.clusters.observed import FENCED, Observed
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.instances import live_members
from steersman_databases.controllers.lookup import find_live
from steersman_databases.engines.topology import Topology
from steersman_databases.resources.cluster_services import SERVICE_LABEL
from steersman_databases.resources.slices import LEADERSHIP, endpoints_of, leads_to, pods_of


async def route(charge: Charge, topology: Topology, observed: Observed) -> None:
    """Corrects slices that do not lead to the primary. First the slice is read, then who leads, as the members do."""
    primary = observed.primary
    # Somebody may become the primary, and says so by himself; until then nobody is led to a pod that is gone.
    awaited = primary is None and any(i.pod is not None and not i.fenced for i in observed.instances)
    if primary is not None and (primary.pod is None or not primary.pod.status.pod_ips):
        return
    present = {i.pod.metadata.uid for i in observed.instances if i.pod is not None}
    for service in charge.view.writable_services:
        for key in charge.view.names.slices(service):
            cached = await charge.client.get_or_none(EndpointSlice, key)
            if (
                cached is None
                or not charge.controls(cached)
                or leads_to(cached, endpoints_of(_target(observed), cached.address_type))
                or (awaited and present.issuperset(pods_of(cached).values()))
            ):
                continue
            found = await find_live(charge.client, EndpointSlice, key)
            if found is None or not charge.controls(found):
                continue
            if _target(observed) is None and await _is_there(charge, found):
                # Newer than what was observed.
                continue
            await _correct(charge, topology, observed, found)


async def _is_there(charge: Charge, found: EndpointSlice) -> bool:
    """Whether a pod that it leads to is, and may serve."""
    pods = [
        (await find_live(charge.client, Pod, ObjectKey(found.metadata.namespace, name)), uid)
        for name, uid in pods_of(found).items()
    ]
    return any(pod is not None and pod.metadata.uid == uid and _may_serve(pod) for pod, uid in pods)


def _may_serve(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.annotations.get(FENCED) != "true"


async def is_routed(charge: Charge, observed: Observed) -> bool:
    """Whether clients are led to who leads now: who does so writes that, as soon as it takes writes."""
    slices = [
        await charge.client.get_or_none(EndpointSlice, key)
        for key in charge.view.names.slices(charge.view.names.service("rw").name)
    ]
    wrote = [found.metadata.annotations.get(LEADERSHIP) for found in slices if found is not None and found.endpoints]
    return observed.members.leader is not None and observed.members.leadership in wrote


async def _correct(charge: Charge, topology: Topology, observed: Observed, found: EndpointSlice) -> None:
    live, target = charge.client.live, _target(observed)
    agreed = await live_members(charge, topology)
    if agreed.leader != observed.members.leader:
        # Somebody else leads now, and writes it.
        return
    if target is not None:
        present = await find_live(charge.client, Pod, target.key)
        if present is None or present.metadata.uid != target.metadata.uid:
            # Made anew under its name, with another address.
            return
    endpoints = endpoints_of(target, found.address_type)
    # As the members write it: what a former leader read before this leadership must not be what stands there.
    annotations = {LEADERSHIP: agreed.leadership} if endpoints else {}
    metadata = {"resourceVersion": found.metadata.resource_version, "annotations": annotations}
    body = {"metadata": metadata, "endpoints": endpoints}
    try:
        await live.patch(EndpointSlice, found.key, MergePatch(body))
    except Conflict:
        return
    service = found.metadata.labels.get(SERVICE_LABEL, "")
    where = "nobody" if not endpoints else endpoints[0]["targetRef"]["name"]
    charge.events.normal(charge.cluster, "DriftRepaired", f"Service {service} leads to {where}")


def _target(observed: Observed) -> Pod | None:
    primary = observed.primary
    return None if primary is None or primary.pod_ends else primary.pod
