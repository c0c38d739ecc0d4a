"""Contract between the operator and the image of a pod.

The contract is the number of the functions that an image has: its configuration, requests and reports. The operator
sends no request to a pod whose contract it does not support. Images recreate, stop and hand over without requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman_databases.cluster.actions import (
    Action,
    RecreatePod,
    ResolveTarget,
    RestartServer,
    RetryBootstrap,
    SwitchOver,
    Wait,
)
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.versions import CONTRACTS


def unsupported(state: ClusterState) -> Sequence[Instance]:
    """Return the instances whose images have an unsupported contract."""
    return [i for i in state.instances if i.pod is not None and _contract_of(i) not in (None, *CONTRACTS)]


def guard(cluster: DeclaredCluster, state: ClusterState, step: Action | Wait | None) -> Action | Wait | None:
    """Replace a step that would send a request to an unsupported image.

    A primary that a newer image replaces hands over when its pod stops.
    """
    found = unsupported(state)
    if not found:
        return step
    primary = state.primary
    if isinstance(step, SwitchOver) and primary in found and primary is not None and primary.image != cluster.image:
        return RecreatePod(primary.ordinal, step.reason)
    if step is None or isinstance(step, SwitchOver | RestartServer | ResolveTarget | RetryBootstrap):
        return _report(cluster, found[0])
    return step


def _contract_of(instance: Instance) -> int | None:
    return None if instance.member is None else instance.member.contract


def _report(cluster: DeclaredCluster, instance: Instance) -> Wait:
    contract, pod = _contract_of(instance), cluster.names.pod(instance.ordinal).name
    message = (
        f"the image of pod {pod} has contract {contract}, and the operator supports contracts {CONTRACTS[0]} to"
        f" {CONTRACTS[-1]}: no request is sent to its pod"
    )
    if contract is not None and contract > CONTRACTS[-1]:
        return Wait("OperatorTooOld", message)
    spec = '{"spec":{"image":null,"maintenance":{"minorUpgrades":"Automatic"}}}'
    key = cluster.key
    command = f"kubectl patch {cluster.kind.lower()} {key.name} -n {key.namespace} --type merge -p '{spec}'"
    return Wait("ImageTooOld", f"{message}. To run the image of this release: {command}")
