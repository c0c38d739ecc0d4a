"""Hash of a Job's pod. A Job with another hash is recreated.

The pod template of a Job is immutable.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import batch, core
from steersman.api.batch_v1 import Job
from steersman.meta import to_builtins
from steersman_databases.core.content_hash import content_hash

POD_HASH = "databases.steersman.dev/job-hash"
"""On Jobs: a hash of their pod as it was asked for. Admission adds to what is there, so that is not compared."""


def job_hash(pod: core.PodSpec) -> dict[str, str]:
    """Return the annotation with the hash of a Job's pod."""
    assert not isinstance(pod.containers, UnsetType)
    # Its command is the operator's own, and psql's has a random word each time.
    compared = replace(pod, containers=[replace(c, command=UNSET) for c in pod.containers])
    return {POD_HASH: content_hash(to_builtins(compared))}


def spec_changed(job: Job, desired_job: batch.Job) -> bool:
    """Return True if a Job needs another pod.

    Jobs without the annotation are kept.
    """
    current_hash = job.metadata.annotations.get(POD_HASH)
    assert not isinstance(desired_job.metadata, UnsetType) and not isinstance(
        desired_job.metadata.annotations, UnsetType
    )
    return current_hash is not None and current_hash != desired_job.metadata.annotations[POD_HASH]
