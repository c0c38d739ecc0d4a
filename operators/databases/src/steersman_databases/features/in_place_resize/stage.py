"""Stage of the in-place resize: patch pods and record the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.client import MergePatch, StrategicMergePatch
from steersman.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from steersman.meta import to_builtins
from steersman_databases.cluster.rules.pod_hashes import restart_hash
from steersman_databases.cluster.rules.rolling_update import resize_of, target_image
from steersman_databases.cluster.state import RESTART_HASH, ClusterState, Instance
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import truncated
from steersman_databases.features.in_place_resize.model import (
    RESIZE,
    RETRY_AFTER,
    ResizeRecord,
    declared_resources,
    has_declared_resources,
    record_of,
)

_NEVER_POSSIBLE = frozenset({"NodeCapacity", "UnsupportedPlatform"})
"""Causes of refusals that are final for the node of the pod."""


class PodResizer:
    """Resizes the pods of one cluster.

    That interrupts nothing, so it does not depend on the state of the cluster.
    """

    def __init__(self, context: ClusterContext) -> None:
        self._context = context

    async def refresh(self, state: ClusterState) -> ClusterState:
        """Read the pods live whose resize seems to have failed.

        A watch that lags behind shows a resize that has succeeded as one that takes too long.
        """
        return replace(state, instances=[await self._refreshed(state, instance) for instance in state.instances])

    async def _refreshed(self, state: ClusterState, instance: Instance) -> Instance:
        record = None if instance.pod is None else record_of(instance.pod)
        if record is None or record.is_final:
            return instance
        resize = resize_of(self._context.declared, state, instance)
        if resize is None or resize.step != "Recreate":
            return instance
        live = await get_live(self._context.client, Pod, self._context.declared.names.pod(instance.ordinal))
        return instance if live is None else replace(instance, pod=live)

    async def ensure(self, state: ClusterState) -> None:
        """Take the next step of each pod."""
        for instance in state.instances:
            resize = resize_of(self._context.declared, state, instance)
            if resize is None or instance.pod is None:
                continue
            target = restart_hash(self._context.declared, target_image(self._context.declared, state, instance))
            # A pod that is gone is observed by the next reconcile.
            with suppress(NotFound):
                if resize.step == "Request":
                    await self._request(instance.pod, target, resize.message)
                elif resize.step == "Complete":
                    await self._annotate(instance.pod, {RESTART_HASH: target})
                    if instance.restart_hash != target:
                        self._emit_resized(instance.pod)

    async def _request(self, pod: Pod, target: str, last_refusal: str) -> None:
        """Record a request, make it, and record a refusal.

        In this order a resize is undone if the declaration changes back.
        """
        record, now = record_of(pod), self._context.clock.now()
        if record is not None and record.target == target and now - record.requested_at < RETRY_AFTER:
            return
        repeated = None if record is None or record.target != target else record.repeated_since or now
        record = ResizeRecord(target=target, requested_at=now, refusal=last_refusal, repeated_since=repeated)
        await self._record(pod, record)
        declared = self._context.declared
        if has_declared_resources(declared, pod):
            return
        resources = {"$patch": "replace", **to_builtins(declared_resources(declared))}
        body = {
            "metadata": {"uid": pod.metadata.uid},
            "spec": {"containers": [{"name": pod.spec.containers[0].name, "resources": resources}]},
        }
        try:
            await self._context.client.patch(Pod, pod.key, StrategicMergePatch(body), subresource="resize")
        except (BadRequest, Forbidden, Invalid, NotFound) as error:
            refused = msgspec.structs.replace(record, refusal=truncated(str(error)), is_final=_is_final(error))
            if refused != record:
                await self._record(pod, refused)

    async def _record(self, pod: Pod, record: ResizeRecord) -> None:
        await self._annotate(pod, {RESIZE: msgspec.json.encode(record).decode()})

    async def _annotate(self, pod: Pod, annotations: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        await self._context.client.patch(Pod, pod.key, MergePatch(body))

    def _emit_resized(self, pod: Pod) -> None:
        resources = declared_resources(self._context.declared)
        message = f"resized pod {pod.metadata.name} in place: {_describe(resources)}"
        self._context.events.normal(self._context.cluster, "PodResized", message)


def _is_final(error: ApiError) -> bool:
    """Return True if this pod can never be resized so.

    A quota or an admission policy would also refuse the recreated pod, so the request is repeated then.
    """
    if isinstance(error, Forbidden):
        return any(cause.reason in _NEVER_POSSIBLE for cause in error.causes)
    return isinstance(error, Invalid | NotFound)


def _describe(resources: ResourceRequirements) -> str:
    return "; ".join(_amounts(resources))


def _amounts(resources: ResourceRequirements) -> Iterator[str]:
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        if amounts:
            yield f"{kind} {', '.join(f'{name}={amount}' for name, amount in sorted(amounts.items()))}"
