"""A major upgrade, derived from what is there: the version on the claims, and the Jobs that check and upgrade.

The claim's label says whose the data are. It is changed by one write, after the Job has upgraded and checked them:
before it everything leads back to the former version, and after it nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from steersman.api.batch_v1 import Job
from steersman.meta import Quantity, is_true
from steersman_databases.clusters.observed import MAJOR_LABEL, Instance, Observed, number_of
from steersman_databases.engines.cluster import ClusterView, InUse

GENERATION = "databases.steersman.dev/generation"
"""On the Job of an upgrade: the generation of the cluster that asked for it."""

_SPARE = 64 << 20  # bytes that pg_upgrade needs beside the copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An upgrade that is declared: ``generation`` is the cluster's, ``image`` has the programs of both versions."""

    former: str
    version: str
    image: str
    generation: int


Stage = Literal["None", "Withdraw", "Stop", "Wait", "Commit", "RolledBack"]


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


def stage(observed: Observed, job: Job | None, due: Due | None) -> Stage:
    """What is to be done with an upgrade that may have begun; None: nothing."""
    if job is None:
        return "None"
    if due is None:
        # Done, or taken back by who declared it.
        return "Withdraw"
    failed = is_true(job.status.conditions, "Failed")
    if job.metadata.annotations.get(GENERATION) != str(due.generation) and (failed or job.spec.suspend):
        # Something else is declared now: what had not begun begins anew, what failed is tried again.
        return "Withdraw"
    if failed:
        return "RolledBack"
    if is_true(job.status.conditions, "Complete"):
        return "Commit"
    if not job.spec.suspend:
        return "Wait"
    members = observed.members
    last = members.leader if members.leader is not None else members.former_leader
    # Another took over while all were being stopped, and may have more.
    return "Stop" if last in (None, number_of(job)) else "Withdraw"


def too_small(instance: Instance, used: InUse) -> str:
    """Why the volume is too small for a copy of the data, as far as its size tells; empty where it is not."""
    capacity = None if instance.data is None else instance.data.status.capacity.get("storage")
    needed = 2 * used.size + _SPARE
    if capacity is None or int(Quantity(capacity).value) >= needed:
        return ""
    return f"the data are copied and take {needed >> 20} MiB then, and the volume has {capacity}"
