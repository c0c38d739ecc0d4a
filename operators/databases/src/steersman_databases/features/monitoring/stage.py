"""Ensures the PodMonitor of a cluster where the API server serves PodMonitors."""

from __future__ import annotations

from steersman_databases.api.cluster_common import MonitoringSettings
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import cluster_labels
from steersman_databases.features.monitoring.specs import PodMonitor, pod_monitor


async def ensure_pod_monitor(context: ClusterContext, settings: MonitoringSettings) -> None:
    """Apply the declared PodMonitor, or delete the one of the cluster.

    A PodMonitor of that name that others have created stays, and is reported as a name conflict.
    """
    if not await context.client.is_served(PodMonitor):
        return
    names = context.declared.names
    with context.deferred:
        if not settings.pod_monitor.enabled:
            await context.delete_if_controlled(PodMonitor, names.key)
            return
        present = await get_cached_or_live(context.client, PodMonitor, names.key)
        if present is not None:
            present = await context.require_control(PodMonitor, present)
        desired = PodMonitor.of(dict(pod_monitor(names, cluster_labels(context.declared), settings.pod_monitor)))
        applied = await context.client.apply(desired, owner=context.cluster)
        if present is None:
            context.emit_created(PodMonitor, names.key)
        elif applied.metadata.generation != present.metadata.generation:
            context.emit_updated(PodMonitor, names.key)
