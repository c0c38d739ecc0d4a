"""Instances that do not come back by themselves."""

from __future__ import annotations

from datetime import timedelta

from steersman_databases.clusters import rollout
from steersman_databases.clusters.observed import Instance, Observed, is_lost
from steersman_databases.clusters.steps import RenewPod, RetireInstance, Step, Wait
from steersman_databases.clusters.trouble import is_stuck
from steersman_databases.engines.cluster import ClusterView

_STUCK_AFTER = timedelta(minutes=5)
_BROKEN_AFTER = timedelta(minutes=5)
_BROKEN_RESTARTS = 2


def renew_stuck(cluster: ClusterView, observed: Observed) -> Step | None:
    """A pod that serves nobody and was made for another declaration: what is declared now may be what helps it."""
    for instance in observed.instances:
        if instance.pod is None or instance.pod_ready or not rollout.is_outdated(cluster, observed, instance):
            continue
        if instance.member is not None and instance.member.state == "Cloning":
            # A copy of much data takes hours, and would begin anew.
            continue
        if is_stuck(instance.pod) or instance.unready_for(observed.now) > _STUCK_AFTER:
            return RenewPod(instance.number, "it does not start, and something else is declared now")
    return None


def replace(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """Takes a failed replica away, so that another is made. Only with a primary, and never the primary itself."""
    if not cluster.replaces_failed or observed.primary is None or not observed.primary.pod_ready:
        return None
    if len(observed.instances) < cluster.instances:
        # Another one is being replaced at the moment.
        return None
    for instance in observed.replicas():
        others = (i for i in observed.replicas() if i.number != instance.number)
        if any(i.member is None and not failure(i, observed) for i in others):
            # One at a time: somebody copies the primary's data already.
            continue
        if (because := failure(instance, observed)) and not cluster.requests.fences(instance.number):
            return RetireInstance(instance.number, because, failed=True)
    return None


def failure(instance: Instance, observed: Observed) -> str:
    """Why an instance will not come back by itself, the end of a sentence; empty where it may."""
    if is_lost(instance):
        return "its volume is gone"
    if instance.home_lost:
        return "its node is gone"
    member = instance.member
    broken = member is not None and (member.diverged or member.state == "StartFailed")
    patient = instance.unready_for(observed.now) > _BROKEN_AFTER and instance.restarts >= _BROKEN_RESTARTS
    return "its data are broken" if broken and patient else ""
