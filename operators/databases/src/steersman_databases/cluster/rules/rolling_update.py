"""Rolling update: recreate outdated pods, replicas first, the previous primary last."""

from __future__ import annotations

from collections.abc import Sequence

from steersman_databases.cluster.actions import Action, RecreatePod, Wait
from steersman_databases.cluster.rules import minor_versions, switchover_attempts
from steersman_databases.cluster.rules.pod_hashes import pull_hash
from steersman_databases.cluster.state import PULL_HASH, ClusterState, Instance, requested_image
from steersman_databases.cluster.status.pod_problems import first_problem, problem_of
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import VERSION_LABEL
from steersman_databases.features.in_place_resize import model as resize_model
from steersman_databases.features.in_place_resize.model import Resize

_REASON = "its pod differs from the declaration"
OLDER_THAN_ANOTHER = "another instance of the same image runs a newer version"
_FENCED = "it is fenced"
_NOT_STREAMING = "it is not streaming from the primary"
_DISK_FULL = "its volume is full"
_NEWER_VERSION = "it runs a newer version than another instance"
_NOT_SYNCHRONOUS = "it is not a synchronous standby"
PROMOTION_PROBLEMS = frozenset({_FENCED, _NOT_STREAMING, _DISK_FULL, _NEWER_VERSION, _NOT_SYNCHRONOUS})
"""Reasons why a replica cannot be promoted. All of them can end."""


def target_image(cluster: DeclaredCluster, state: ClusterState, instance: Instance | None) -> str:
    """Image of its pod if it were recreated now.

    The present image stays, unless another is requested. A new instance, with neither StatefulSet nor pod, runs
    what most others run: it is not the first to try an image. So does an instance that fails with an image that
    is no longer requested. Before any server has run, and if an image cannot be pulled, the requested one is
    used.
    """
    if cluster.has_explicit_image or upgrades_now(cluster, state) or _is_new(state):
        return cluster.image
    current = _current_image(cluster, instance) if instance is not None else ""
    problem = _image_problem(instance) if instance is not None else ""
    if current and not problem:
        return current
    images = [image for i in state.instances if not _image_problem(i) and (image := _current_image(cluster, i))]
    last = current if problem == "InstanceCrashing" else ""
    return max(images, key=images.count, default=last or cluster.image)


def upgrades_now(cluster: DeclaredCluster, state: ClusterState) -> bool:
    """Return True if the operator's newer image is rolled out now.

    An upgrade that has begun is completed, also after its maintenance window: servers of two versions cannot all be
    promoted.
    """
    if not cluster.automatic_minor_upgrades:
        return False
    return not cluster.holds_minor_upgrade or any(
        i.image == cluster.image for i in state.instances if i.is_controlled or i.is_orphan
    )


def _image_problem(instance: Instance) -> str:
    """Problem that may be caused by its image."""
    found = first_problem([instance])
    return found.reason if found is not None and found.reason in ("ImageUnavailable", "InstanceCrashing") else ""


def _is_new(state: ClusterState) -> bool:
    """Return True if no server has run yet. The store of the members may have been lost, so it does not decide."""
    members = state.members
    return not members.is_initialized and all(m.state == "Unknown" for m in members.members)


def pooler_image(cluster: DeclaredCluster, state: ClusterState, present: str) -> str:
    """Image of the poolers: the primary's. Without a primary it stays `present`."""
    primary = state.primary
    if primary is not None and primary.is_controlled and primary.pod_ready:
        return primary.image
    return present or target_image(cluster, state, None)


def _current_image(cluster: DeclaredCluster, instance: Instance) -> str:
    """Image that its pod runs or will run, "" for another major version.

    Its StatefulSet received another image before its pod did, if one was requested and no longer is, or in a
    maintenance window that has ended. A recreated StatefulSet must find the pod as the previous one left it.
    """
    runs = instance.pod if instance.is_controlled or instance.is_orphan else None
    if not instance.pod_ready and (instance.pod_terminating or not cluster.holds_minor_upgrade):
        runs = None
    to_run = None if instance.statefulset is None else instance.statefulset.spec.template
    made = runs or to_run
    if made is None or made.metadata.labels.get(VERSION_LABEL, cluster.version) != cluster.version:
        return ""
    return requested_image(made)


def resize_of(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> Resize | None:
    """Return how its pod becomes as declared, or None if it is."""
    return resize_model.decide(cluster, target_image(cluster, state, instance), instance, state.now)


def is_outdated(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> bool:
    """Return True if its pod must be recreated for the present declaration."""
    resize = resize_of(cluster, state, instance)
    return resize is not None and resize.step == "Recreate"


def is_resized_in_place(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> bool:
    """Return True if its pod was resized or is about to be."""
    resize = resize_of(cluster, state, instance)
    if resize is not None:
        return resize.step != "Recreate"
    return instance.pod is not None and resize_model.record_of(instance.pod) is not None


def await_resize(cluster: DeclaredCluster, state: ClusterState) -> Wait | None:
    """Wait for the pods whose resize the API server has accepted."""
    for instance in state.instances:
        resize = resize_of(cluster, state, instance)
        if resize is not None and resize.step in ("Wait", "Complete"):
            progress = f": {resize.message}" if resize.message else ""
            return Wait("RollingOut", f"resizing pod {cluster.names.pod(instance.ordinal).name} in place{progress}")
    return None


def await_resize_request(cluster: DeclaredCluster, state: ClusterState) -> Wait | None:
    """Wait for the API server to accept a resize.

    A quota may prevent that for long.
    """
    for instance in state.instances:
        resize = resize_of(cluster, state, instance)
        if resize is not None and resize.step == "Request":
            pod = cluster.names.pod(instance.ordinal).name
            if resize.message:
                return Wait("PodRejected", f"pod {pod} cannot be resized in place: {resize.message}")
            return Wait("RollingOut", f"resizing pod {pod} in place")
    return None


def pull_settings_changed(cluster: DeclaredCluster, instance: Instance) -> bool:
    """Return True if its pod waits with previous pull settings."""
    pod = instance.pod
    if pod is None or instance.pod_terminating:
        return False
    problem = problem_of(pod)
    if problem is None or problem.reason != "ImageUnavailable":
        return False
    return pod.metadata.annotations.get(PULL_HASH, "") != pull_hash(cluster)


def next_pod(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Next pod to recreate. All instances are healthy."""
    outdated = [i for i in state.instances if not i.fenced and _recreate_reason(cluster, state, i)]
    if not outdated:
        return None
    primary = state.members.primary
    assert primary is not None
    unadopted = next((i for i in outdated if i.is_orphan), None)
    replicas = [i for i in outdated if i.ordinal != primary.instance and not i.is_orphan]
    if replicas:
        last = max(replicas, key=_lag)
        return RecreatePod(last.ordinal, _recreate_reason(cluster, state, last))
    if unadopted is not None:
        # Its StatefulSet may not recreate it.
        controller_missing, pod = cluster.names.instance(unadopted.ordinal), cluster.names.pod(unadopted.ordinal).name
        return Wait("RollingOut", f"waiting for StatefulSet {controller_missing} to adopt pod {pod}")
    to = successors(cluster, state)
    if not to:
        # Also if all others are newer already: it leaves in order, and the others elect a primary.
        return RecreatePod(primary.instance, _recreate_reason(cluster, state, outdated[0]))
    return switchover_attempts.plan_switchover(cluster, state, to, "the pod of the primary must be recreated")


def _recreate_reason(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> str:
    """Reason for recreating its pod, or empty."""
    resize = resize_of(cluster, state, instance)
    if resize is not None and resize.step == "Recreate":
        return f"{_REASON}{resize.message and f' and cannot be resized in place: {resize.message}'}"
    return OLDER_THAN_ANOTHER if minor_versions.should_recreate(cluster, state, instance) else ""


def successors(cluster: DeclaredCluster, state: ClusterState) -> Sequence[Instance]:
    """Replicas that could become primary, the best first.

    Those that have not refused come first, then those that are as declared, then by replication lag.
    """
    rejected = switchover_attempts.already_tried(cluster, state)

    def rank(instance: Instance) -> tuple[bool, bool, int, int]:
        outdated = bool(_recreate_reason(cluster, state, instance))
        return instance.ordinal in rejected, outdated, _lag(instance), instance.ordinal

    return sorted(promotable(cluster, state), key=rank)


def promotable(cluster: DeclaredCluster, state: ClusterState) -> Sequence[Instance]:
    """Replicas that can be promoted without loss and with a permitted version.

    They have disk space. With synchronous replication they are synchronous.
    """
    if state.members.primary is None:
        return ()
    return [i for i in state.replicas() if not promotion_problem(cluster, state, i)]


def promotion_problem(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> str:
    """Reason why a replica cannot be promoted, one of `PROMOTION_PROBLEMS`, or empty."""
    primary, member = state.members.primary, instance.member
    if cluster.requests.is_fenced(instance.ordinal):
        return _FENCED
    if (
        primary is None
        or member is None
        or instance.ordinal == primary.instance
        or not instance.is_following(primary)
    ):
        return _NOT_STREAMING
    if member.disk_full:
        return _DISK_FULL
    if member.newer_version:
        return _NEWER_VERSION
    return "" if cluster.synchronous.mode == "Disabled" or member.synchronous else _NOT_SYNCHRONOUS


def lacks_standbys(cluster: DeclaredCluster, state: ClusterState) -> bool:
    """Return True if replicas should be synchronous and none is."""
    if cluster.synchronous.mode == "Disabled" or not any(i.member for i in state.replicas()):
        return False
    return not any(m.synchronous for m in state.members.members)


def _lag(instance: Instance) -> int:
    unknown = 1 << 62
    member = instance.member
    lag = None if member is None else member.apply_queue if member.lag_bytes is None else member.lag_bytes
    return unknown if lag is None else lag
