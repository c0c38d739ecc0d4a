"""Correction of the endpoints of -rw.

The primary writes them itself. The operator does so if a slice was deleted or no member serves.
"""

from __future__ import annotations

from steersman.api.core_v1 import Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman.errors import Conflict
from steersman.meta import ObjectKey
from steersman_databases.cluster.executor import read_leader_live
from steersman_databases.cluster.state import FENCED_INSTANCE, ClusterState
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.members import HaBackend
from steersman_databases.features.services.endpoint_slices import (
    LEADER_TERM_ANNOTATION,
    endpoints_of,
    pods_of,
    points_to,
)
from steersman_databases.features.services.specs import SERVICE_LABEL


async def reconcile(context: ClusterContext, ha_backend: HaBackend, state: ClusterState) -> None:
    """Correct slices that do not lead to the primary.

    The slice is read before the leader, as members do it.
    """
    primary = state.primary
    # A member may become the primary and write the slice itself. Until then it must not lead to a deleted pod.
    expected = primary is None and any(i.pod is not None and not i.fenced for i in state.instances)
    if primary is not None and (primary.pod is None or not primary.pod.status.pod_ips):
        return
    present = {i.pod.metadata.uid for i in state.instances if i.pod is not None}
    for service in context.declared.writable_services:
        for key in context.declared.names.endpoint_slices(service):
            cached = await context.client.get_or_none(EndpointSlice, key)
            if (
                cached is None
                or not context.controls(cached)
                or points_to(cached, endpoints_of(_target(state), cached.address_type))
                or (expected and present.issuperset(pods_of(cached).values()))
            ):
                continue
            found = await get_live(context.client, EndpointSlice, key)
            if found is None or not context.controls(found):
                continue
            if _target(state) is None and await _points_to_live_pod(context, found):
                # The slice is newer than the observed state.
                continue
            await _patch(context, ha_backend, state, found)


async def _points_to_live_pod(context: ClusterContext, found: EndpointSlice) -> bool:
    """Return True if one of its pods exists and may serve."""
    pods = [
        (await get_live(context.client, Pod, ObjectKey(found.metadata.namespace, name)), uid)
        for name, uid in pods_of(found).items()
    ]
    return any(pod is not None and pod.metadata.uid == uid and _may_serve(pod) for pod, uid in pods)


def _may_serve(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.annotations.get(FENCED_INSTANCE) != "true"


async def points_to_leader(context: ClusterContext, state: ClusterState) -> bool:
    """Return True if clients are routed to the present leader.

    The leader writes the slice as soon as it accepts writes.
    """
    slices = [
        await context.client.get_or_none(EndpointSlice, key)
        for key in context.declared.names.endpoint_slices(context.declared.names.service("rw").name)
    ]
    leader = [
        found.metadata.annotations.get(LEADER_TERM_ANNOTATION)
        for found in slices
        if found is not None and found.endpoints
    ]
    return state.members.leader is not None and state.members.leader_term in leader


async def _patch(context: ClusterContext, ha_backend: HaBackend, state: ClusterState, found: EndpointSlice) -> None:
    live, target = context.client.live, _target(state)
    agreed = await read_leader_live(context, ha_backend)
    if agreed.leader != state.members.leader:
        # Another member leads now and writes the slice.
        return
    if target is not None:
        present = await get_live(context.client, Pod, target.key)
        if present is None or present.metadata.uid != target.metadata.uid:
            # Recreated under its name, with another address.
            return
    endpoints = endpoints_of(target, found.address_type)
    # As members write it: a previous leader that read the slice before this term must not overwrite it.
    annotations = {LEADER_TERM_ANNOTATION: agreed.leader_term} if endpoints else {}
    metadata = {"resourceVersion": found.metadata.resource_version, "annotations": annotations}
    body = {"metadata": metadata, "endpoints": endpoints}
    try:
        await live.patch(EndpointSlice, found.key, MergePatch(body))
    except Conflict:
        return
    service = found.metadata.labels.get(SERVICE_LABEL, "")
    where = "nobody" if not endpoints else endpoints[0]["targetRef"]["name"]
    context.events.normal(context.cluster, "DriftReverted", f"Service {service} routes to {where}")


def _target(state: ClusterState) -> Pod | None:
    primary = state.primary
    return None if primary is None or primary.pod_terminating else primary.pod
