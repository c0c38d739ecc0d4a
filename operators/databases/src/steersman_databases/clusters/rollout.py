"""Pods that are not what the user declares are made anew: replicas first, then the former primary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from steersman.meta import to_builtins
from steersman_databases.clusters import handover, minors
from steersman_databases.clusters.observed import PULL_HASH, RESTART_HASH, Instance, Observed
from steersman_databases.clusters.steps import RenewPod, Step, Wait
from steersman_databases.clusters.trouble import trouble_in, trouble_of
from steersman_databases.engines.cluster import DEFAULT_PULL_POLICY, ClusterView
from steersman_databases.engines.cluster_names import VERSION_LABEL

_BECAUSE = "its pod is not as declared"
_BEHIND = "another of its image is newer"


def restart_hash(cluster: ClusterView, image: str) -> str:
    """A hash of all that the user declared and that takes effect with a new pod only.

    The operator's own part of the template is not in it, so that another version of the operator restarts nothing.
    """
    pods = cluster.pods
    declared: dict[str, Any] = {
        "image": image,
        "resources": to_builtins(pods.resources),
        "shm": None if pods.shm_size is None else str(pods.shm_size),
        "affinity": None if pods.affinity is None else to_builtins(pods.affinity),
        "nodeSelector": dict(pods.node_selector),
        "tolerations": to_builtins(pods.tolerations),
        "spread": to_builtins(pods.topology_spread_constraints),
        "priority": pods.priority_class,
        "labels": dict(pods.labels),
        "annotations": dict(pods.annotations),
        "restart": cluster.requests.restart,
    }
    # What is not declared does not count, or a field that a later version adds would restart all.
    said = {key: value for key, value in declared.items() if value}
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:16]


def pull_hash(cluster: ClusterView) -> str:
    """A hash of how the user declared that images are pulled, empty where nothing is.

    Who has its image needs no new pod for another. What pods have is not compared: admission adds the secrets of
    service accounts, and may have each image pulled anew.
    """
    pods = cluster.pods
    policy = "" if pods.image_pull_policy == DEFAULT_PULL_POLICY else pods.image_pull_policy
    secrets = sorted(secret.name for secret in pods.image_pull_secrets)
    if not policy and not secrets:
        return ""
    return hashlib.sha256(msgspec.json.encode([policy, secrets])).hexdigest()[:16]


def hashes(cluster: ClusterView, image: str) -> Mapping[str, str]:
    """The annotations that tell for which declaration a pod was made."""
    pulled = pull_hash(cluster)
    return {RESTART_HASH: restart_hash(cluster, image), **({PULL_HASH: pulled} if pulled else {})}


def wanted_image(cluster: ClusterView, observed: Observed, instance: Instance | None) -> str:
    """The image of its pod, were it made now: what is there stays, unless another is asked for.

    An instance that is new (None, or with neither StatefulSet nor pod) runs what most others run: it is not the first
    to try. So does one that does not run with what it has: that was asked for, and is not any more. Before anybody
    has run there is nothing that could stay, nor where an image cannot be had.
    """
    if cluster.image_given or cluster.upgrades_minor or _is_new(observed):
        return cluster.image
    own = _present_image(cluster, instance) if instance is not None else ""
    trouble = _trouble(instance) if instance is not None else ""
    if own and not trouble:
        return own
    images = [image for i in observed.instances if not _trouble(i) and (image := _present_image(cluster, i))]
    last = own if trouble == "InstanceCrashing" else ""
    return max(images, key=images.count, default=last or cluster.image)


def _trouble(instance: Instance) -> str:
    """What may be the fault of its image."""
    found = trouble_of([instance])
    return found.reason if found is not None and found.reason in ("ImageUnavailable", "InstanceCrashing") else ""


def _is_new(observed: Observed) -> bool:
    """Whether no server has run yet: that the members' store says so is not enough, as it may have been lost."""
    members = observed.members
    return not members.initialized and all(m.state == "Unknown" for m in members.members)


def pooler_image(cluster: ClusterView, observed: Observed, present: str) -> str:
    """The image of the poolers: what the primary runs. Without a primary they go on as they are, with ``present``."""
    primary = observed.primary
    if primary is not None and primary.is_own and primary.pod_ready:
        return primary.image
    return present or wanted_image(cluster, observed, None)


def _present_image(cluster: ClusterView, instance: Instance) -> str:
    """What its pod runs, or is to run; nothing where that was made for data of another version.

    Its StatefulSet had another image before its pod did, where one was asked for that is not any more. Where that is
    made anew, it is to find the pod as the former one left it.
    """
    runs = instance.pod if instance.pod_ready and (instance.is_own or instance.is_unadopted) else None
    to_run = None if instance.statefulset is None else instance.statefulset.spec.template
    made = runs or to_run
    if made is None or made.metadata.labels.get(VERSION_LABEL, cluster.version) != cluster.version:
        return ""
    return next((c.image or "" for c in made.spec.containers), "")


def is_outdated(cluster: ClusterView, observed: Observed, instance: Instance) -> bool:
    """Whether its pod was made for another declaration."""
    if instance.pod is None or instance.pod_ends:
        return False
    return instance.hash != restart_hash(cluster, wanted_image(cluster, observed, instance))


def is_pulled_otherwise(cluster: ClusterView, instance: Instance) -> bool:
    """Whether its pod waits for an image in vain, and was made when images were to be pulled otherwise."""
    pod = instance.pod
    if pod is None or instance.pod_ends:
        return False
    trouble = trouble_in(pod)
    if trouble is None or trouble.reason != "ImageUnavailable":
        return False
    return pod.metadata.annotations.get(PULL_HASH, "") != pull_hash(cluster)


def renew(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """The next pod that is to be made anew; all are well when this is asked."""
    outdated = [i for i in observed.instances if not i.fenced and _why(cluster, observed, i)]
    if not outdated:
        return None
    primary = observed.members.primary
    assert primary is not None
    unadopted = next((i for i in outdated if i.is_unadopted), None)
    replicas = [i for i in outdated if i.number != primary.instance and not i.is_unadopted]
    if replicas:
        last = max(replicas, key=_lag)
        return RenewPod(last.number, _why(cluster, observed, last))
    if unadopted is not None:
        # Its StatefulSet is not known to make another in its place.
        adopter, pod = cluster.names.instance(unadopted.number), cluster.names.pod(unadopted.number).name
        return Wait("RollingOut", f"waiting for StatefulSet {adopter} to adopt pod {pod}")
    to = successors(cluster, observed)
    if not to:
        # Also where all others are newer already: then it leaves in order, and those that are left elect one.
        return RenewPod(primary.instance, _why(cluster, observed, outdated[0]))
    return handover.hand_over(cluster, observed, to, "its primary is renewed")


def _why(cluster: ClusterView, observed: Observed, instance: Instance) -> str:
    """Why its pod is to be made anew; empty where it stays."""
    if is_outdated(cluster, observed, instance):
        return _BECAUSE
    return _BEHIND if minors.catches_up(cluster, observed, instance) else ""


def successors(cluster: ClusterView, observed: Observed) -> Sequence[Instance]:
    """The replicas to hand over to, the best first.

    One that was not asked before one that refused, one that is as declared before one that is not, then by its lag.
    """
    refused = handover.asked(cluster, observed)

    def merits(instance: Instance) -> tuple[bool, bool, int, int]:
        outdated = bool(_why(cluster, observed, instance))
        return instance.number in refused, outdated, _lag(instance), instance.number

    return sorted(promotable(cluster, observed), key=merits)


def promotable(cluster: ClusterView, observed: Observed) -> Sequence[Instance]:
    """The replicas that may become primary without loss, have room, and are not refused for their version.

    With synchronous replication, synchronous ones only.
    """
    primary = observed.members.primary
    if primary is None:
        return ()
    following = [i for i in observed.replicas() if i.follows(primary) and not cluster.requests.fences(i.number)]
    with_room = [i for i in following if i.member is not None and not i.member.full and not i.member.newer]
    if cluster.synchronous.mode == "Off":
        return with_room
    return [i for i in with_room if i.member is not None and i.member.synchronous]


def lacks_standbys(cluster: ClusterView, observed: Observed) -> bool:
    """Whether there are replicas which should be synchronous, and none is."""
    if cluster.synchronous.mode == "Off" or not any(i.member for i in observed.replicas()):
        return False
    return not any(m.synchronous for m in observed.members.members)


def _lag(instance: Instance) -> int:
    unknown = 1 << 62
    member = instance.member
    lag = None if member is None else member.queued if member.lag_bytes is None else member.lag_bytes
    return unknown if lag is None else lag
