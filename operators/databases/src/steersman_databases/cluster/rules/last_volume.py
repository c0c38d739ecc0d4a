"""The last volume with data, when it is being deleted.

Kubernetes deletes a PVC when no pod uses it any more. So the operator does not end that pod.
"""

from __future__ import annotations

from steersman_databases.cluster.actions import Action, RecreatePod, StopInstance, Wait
from steersman_databases.cluster.state import ClusterState, Instance, has_data
from steersman_databases.engines.cluster_engine import DeclaredCluster


def keep(cluster: DeclaredCluster, state: ClusterState) -> Wait | None:
    """Wait while the last volume with data is being deleted."""
    last = _last(state)
    if last is None or last.pod is None or last.pod_terminating:
        return None
    name = cluster.names.instance(last.ordinal)
    return Wait(
        "Degraded",
        f"the volume of {name} is lost or being deleted, and no other instance has the data: its pod is kept. Raise "
        "spec.instances, so that another instance copies them",
    )


def guard(cluster: DeclaredCluster, state: ClusterState, step: Action | Wait | None) -> Action | Wait | None:
    """Replace a step that would end the pod of the last volume."""
    last = _last(state)
    if last is None or not isinstance(step, RecreatePod | StopInstance) or step.instance != last.ordinal:
        return step
    return keep(cluster, state) or step


def _last(state: ClusterState) -> Instance | None:
    """Return the only instance with data if its volume is being deleted."""
    with_data = [i for i in state.instances if has_data(i)]
    remaining = [i for i in with_data if not _is_deleted(i)]
    if remaining or not with_data:
        return None
    primary = state.primary
    return primary if primary in with_data else with_data[0] if len(with_data) == 1 else None


def _is_deleted(instance: Instance) -> bool:
    return instance.data is not None and instance.data.metadata.deletion_timestamp is not None
