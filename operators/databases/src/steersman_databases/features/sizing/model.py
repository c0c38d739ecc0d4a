"""Mode of a cluster, and the parameters that follow from the resource limits of its instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from steersman.api.core_v1 import Pod
from steersman.meta import Quantity
from steersman_databases.api import Cluster, MySQLCluster
from steersman_databases.api.autopilot.sizing import SizedParameterStatus, Sizing, SizingStatus
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster, InstanceResources
from steersman_databases.engines.server_pod import server_limits

_NO_LIMIT = "spec.resources has no memory limit, so the defaults apply"


def mode_of(cluster: Cluster, *, was_provisioned: bool) -> Sizing:
    """Return the declared mode, or else the recorded one, or else that of a new cluster.

    The status records the mode from the first reconcile on. A cluster that has run without a record is older than
    the field, so its parameters stay.

    Args:
        was_provisioned: a server of the cluster has run before.
    """
    spec = cluster.spec.mysql if isinstance(cluster, MySQLCluster) else cluster.spec.postgresql
    if spec.sizing is not None:
        return spec.sizing
    if cluster.status.sizing is not None:
        return cluster.status.sizing.mode
    return "Defaults" if was_provisioned else "FromResources"


def with_sizing(
    cluster: DeclaredCluster,
    mode: Sizing,
    state: ClusterState,
    engine: ClusterEngine,
    read_replicas: Iterable[Pod] = (),
) -> tuple[DeclaredCluster, SizingStatus]:
    """Return the cluster with its sized parameters, and the status that shows them.

    Declared parameters are left out of both, since they override sized ones.

    Args:
        read_replicas: present pods of read replicas, which use the same parameters.
    """
    if mode == "Defaults":
        return cluster, SizingStatus(mode=mode)
    instances = [instance.pod for instance in state.instances if instance.pod is not None]
    resources = resources_of(cluster, [*instances, *read_replicas])
    if resources is None:
        return cluster, SizingStatus(mode=mode, message=_NO_LIMIT)
    sized = tuple(one for one in engine.sized_parameters(cluster, resources) if one.name not in cluster.parameters)
    shown = tuple(SizedParameterStatus(name=one.name, value=one.value, rule=one.rule) for one in sized)
    return replace(cluster, sized=sized), SizingStatus(mode=mode, parameters=shown)


def resources_of(cluster: DeclaredCluster, pods: Iterable[Pod]) -> InstanceResources | None:
    """Return the limits of servers, or None without a memory limit.

    Args:
        pods: present servers. A pod keeps its limit until it is resized or recreated.
    """
    limits = cluster.pod_settings.resources.limits
    memory = _quantity(limits, "memory")
    if memory is None:
        return None
    cpus = _quantity(limits, "cpu")
    smallest = min([memory, *_running_memory(pods)])
    return InstanceResources(
        memory=int(memory), smallest_memory=int(smallest), cpus=None if cpus is None else float(cpus)
    )


def _running_memory(pods: Iterable[Pod]) -> Iterator[float]:
    for pod in pods:
        for limits in server_limits(pod):
            if (memory := _quantity(limits, "memory")) is not None:
                yield memory


def _quantity(limits: Mapping[str, int | str], name: str) -> float | None:
    return float(Quantity(str(limits[name])).value) if name in limits else None
