"""How far the initial configuration is, by the Job that applies it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ContainerStatus, Pod
from steersman.meta import find_condition, is_true
from steersman_databases.clusters.trouble import Trouble, trouble_in
from steersman_databases.clusters.upgrade import has_ended

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a Job came to: ``ended`` or still at it, and in whose words, the newest pod's first.

    ``idle``: no pod of it is there that has not ended. ``trouble``: one is, and does not start.
    """

    ended: bool
    words: str
    idle: bool = False
    trouble: Trouble | None = None


def progress_of(job: Job, pods: Iterable[Pod]) -> Progress:
    """What there is to tell of ``job``, which left no marker. ``pods`` are its own."""
    newest = sorted(pods, key=lambda p: p.metadata.creation_timestamp or _FIRST, reverse=True)
    words = _words_of(newest)
    if is_true(job.status.conditions, "Complete"):
        return Progress(True, "the SQL ended without an error, and undid its transaction: leave ROLLBACK out")
    failed = find_condition(job.status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        return Progress(True, words or failed.message or "")
    left = [pod for pod in newest if not has_ended(pod)]
    trouble = next((found for pod in left if (found := trouble_in(pod)) and found.reason != "InstanceCrashing"), None)
    return Progress(False, words, idle=not left, trouble=trouble)


def _words_of(pods: Sequence[Pod]) -> str:
    """Of the newest pod that says something: how it ended, or why it does not start."""
    for pod in pods:
        for status in pod.status.container_statuses:
            if said := _words(status):
                return said
    return ""


def _words(status: ContainerStatus) -> str:
    state = status.state
    if state.terminated is not None and state.terminated.exit_code:
        return (state.terminated.message or state.terminated.reason or "").strip()
    if state.waiting is not None and state.waiting.message:
        return f"{state.waiting.reason}: {state.waiting.message}"
    return ""
