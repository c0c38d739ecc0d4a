"""A major upgrade, derived from what is there: the version on the claims, and the Jobs that check and upgrade.

The claim's label says whose the data are. It is changed by one write, after the Job has upgraded and checked them:
before it everything leads back to the former version, and after it nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.meta import Quantity, is_true
from steersman_databases.clusters.observed import MAJOR_LABEL, Instance, Observed, number_of
from steersman_databases.clusters.trouble import Trouble, trouble_in
from steersman_databases.engines.cluster import ClusterView, InUse
from steersman_databases.engines.cluster_names import VERSION_LABEL

DECLARED = "databases.steersman.dev/upgrade-image"
"""On the Job that upgrades: the image that was declared for it, empty for the operator's."""

GIVEN_UP = "databases.steersman.dev/given-up"
"""On the Job that upgrades: why it was ended before it ran."""

# Longer than a node that is added takes, and an image that is pulled at the second try.
_STARTS_WITHIN = timedelta(minutes=5)
_ENDED = frozenset({"Succeeded", "Failed"})
_SPARE = 64 << 20  # bytes that pg_upgrade needs beside the copy
_LOG = 1 << 30  # bytes of log that rebuilding all indexes writes at most until a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An upgrade that is declared: ``generation`` is the cluster's, ``image`` has the programs of both versions.

    ``declared`` is what somebody said of the image: the operator's own is another one with each of its releases.
    """

    former: str
    version: str
    image: str
    generation: int
    declared: str = ""


Stage = Literal["None", "Withdraw", "Stop", "Wait", "GiveUp", "Commit", "RolledBack"]


def has_run(observed: Observed, version: str, told: str) -> bool:
    """Whether this object's own servers were of ``version``. ``told`` is the full version that its status says."""
    made_for = (i.statefulset.metadata.labels.get(VERSION_LABEL) for i in observed.instances if i.statefulset)
    return told.startswith(f"{version}.") or version in made_for


def version_of(instance: Instance) -> str:
    """The version of its data; empty where that is not known."""
    return "" if instance.data is None else instance.data.metadata.labels.get(MAJOR_LABEL, "")


def data_version(observed: Observed) -> str:
    """The version of the cluster's data, the newest where they differ; empty where there are none."""
    known = [version for i in observed.instances if (version := version_of(i)).isdecimal()]
    return max(known, key=int, default="")


def apart(cluster: ClusterView, observed: Observed) -> tuple[Observed, Sequence[Instance]]:
    """The cluster without those instances whose data an upgrade left behind, and these."""
    left = [i for i in observed.instances if version_of(i) not in ("", cluster.version)]
    if not left:
        return observed, ()
    return replace(observed, instances=[i for i in observed.instances if i not in left]), left


def stage(
    observed: Observed, job: Job | None, due: Due | None, stuck: Stuck | None = None, *, otherwise: bool = False
) -> Stage:
    """What is to be done with an upgrade that may have begun; None: nothing. ``stuck``: the Job is.

    ``otherwise``: another pod would be made for it now, in which what it is stuck by may be mended.
    """
    if job is None:
        return "None"
    if due is None or job.metadata.deletion_timestamp is not None:
        # Done, or taken back by who declared it.
        return "Withdraw"
    failed = is_true(job.status.conditions, "Failed")
    another = version_to(job) != due.version
    if failed and (another or job.metadata.annotations.get(DECLARED, "") != due.declared):
        # Somebody declares another upgrade now. A new release of the operator alone has nobody's servers stopped.
        return "Withdraw"
    replaced = another or image_of(job) != due.image
    if (job.spec.suspend and replaced) or (stuck is not None and (replaced or otherwise)):
        # It had not begun, and begins anew.
        return "Withdraw"
    if failed:
        return "RolledBack"
    if is_true(job.status.conditions, "Complete"):
        return "Commit"
    if not job.spec.suspend:
        return "Wait" if stuck is None or not stuck.overdue else "GiveUp"
    last = observed.members.last_leader
    # Another took over while all were being stopped, and may have more.
    return "Stop" if last in (None, number_of(job)) else "Withdraw"


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why no pod of a Job starts; ``overdue``: for so long that it is not to be expected any more."""

    trouble: Trouble
    overdue: bool


def stuck(pods: Sequence[Pod], now: datetime) -> Stuck | None:
    """Whether a pod of a Job waits for its start in vain; one that does never fails the Job."""
    for pod in pods:
        if not has_ended(pod) and (trouble := trouble_in(pod)) is not None:
            return stuck_since(pod.metadata.creation_timestamp or now, trouble, now)
    return None


def stuck_since(since: datetime, trouble: Trouble, now: datetime) -> Stuck:
    """With whether that has lasted too long."""
    return Stuck(trouble, now - since > _STARTS_WITHIN)


def has_ended(pod: Pod) -> bool:
    """Whether nothing of it runs any more."""
    return pod.status.phase in _ENDED


def version_to(job: Job) -> str:
    """The version that ``job`` brings the data to."""
    return job.metadata.labels.get(VERSION_LABEL, "")


def image_of(job: Job) -> str | None:
    """What it runs."""
    return next((c.image for c in job.spec.template.spec.containers), None)


def is_over(job: Job) -> bool:
    """Whether it starts no pod any more, or has not begun to."""
    return job.spec.suspend is True or any(is_true(job.status.conditions, end) for end in ("Complete", "Failed"))


def too_small(instance: Instance, used: InUse) -> Sequence[str]:
    """Why volumes are too small for a copy of the data and a new log, as far as their size tells."""
    needs = (("volume", instance.data, 2 * used.size), ("WAL volume", instance.wal, min(used.size, _LOG)))
    return [
        f"the data are copied, which takes {(needed + _SPARE) >> 20} MiB, and the {name} has {capacity}"
        for name, claim, needed in needs
        if claim is not None and (capacity := claim.status.capacity.get("storage")) is not None
        if int(Quantity(capacity).value) < needed + _SPARE
    ]
