"""What a Job was made for: of its pod nothing can be changed, so one that would be made otherwise is made anew."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import batch, core
from steersman.api.batch_v1 import Job
from steersman.meta import to_builtins

POD_HASH = "databases.steersman.dev/pod-hash"
"""On Jobs: a hash of their pod as it was asked for. Admission adds to what is there, so that is not compared."""


def pod_hash(pod: core.PodSpec) -> dict[str, str]:
    """The annotation that tells for which pod a Job was made."""
    assert not isinstance(pod.containers, UnsetType)
    # Its command is the operator's own, and psql's has a random word each time.
    compared = replace(pod, containers=[replace(c, command=UNSET) for c in pod.containers])
    asked = msgspec.json.encode(to_builtins(compared), order="deterministic")
    return {POD_HASH: hashlib.sha256(asked).hexdigest()[:16]}


def is_made_otherwise(job: Job, now: batch.Job) -> bool:
    """Whether another pod is asked for ``now``. One of a release that did not write down for which is left alone."""
    made = job.metadata.annotations.get(POD_HASH)
    assert not isinstance(now.metadata, UnsetType) and not isinstance(now.metadata.annotations, UnsetType)
    return made is not None and made != now.metadata.annotations[POD_HASH]
