"""Jobs that only read, and print a report for a command.

They run with the rights of the caller, and are deleted afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from steersman.api.apply import batch, core
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.errors import BadRequest, NotFound, SteersmanError
from steersman.meta import FrozenStruct
from steersman_databases.cluster.status.pod_problems import problem_of
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.features.backup.specs import CONTAINER, job_state
from steersman_databases.kubectl.command import OperationRejected
from steersman_databases.kubectl.waiting import wait_until_done

KEPT_SECONDS = 600
"""Time until Kubernetes deletes a finished Job, if the command could not."""
_MAX_REPORT_BYTES = 8 << 20
_JOB_LABEL = "batch.kubernetes.io/job-name"


class JobFailure(FrozenStruct):
    """Failure that a program prints."""

    ok: bool
    reason: str = ""
    message: str = ""


Outcome = TypeVar("Outcome", bound=JobFailure)


def read_outcome(line: str, kind: type[Outcome]) -> Outcome | None:
    """Parse the last line of a program. None if it is not one."""
    if len(line) > _MAX_REPORT_BYTES:
        return None
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return None


def once(job: batch.Job) -> batch.Job:
    """Return a Job without a second attempt that Kubernetes deletes."""
    assert isinstance(job.spec, batch.JobSpec)
    spec = msgspec.structs.replace(job.spec, backoff_limit=0, ttl_seconds_after_finished=KEPT_SECONDS)
    return msgspec.structs.replace(job, spec=spec)


async def run_job(
    client: Client, declared: batch.Job, config: core.ConfigMap, kind: type[Outcome], seconds: float
) -> Outcome:
    """Run a Job, and return what its program printed. The Job is deleted afterwards.

    Args:
        config: ConfigMap with ``job.json``.
        kind: of the outcome.
        seconds: longest time to wait.

    Raises:
        OperationRejected: it failed, or cannot run.
    """
    job = await client.create(once(declared))
    try:
        # It belongs to the Job, so nothing is left if this process ends.
        await client.create(config, owner=job)
        await _wait(client, job, seconds)
        outcome = await _outcome(client, job, kind)
    finally:
        with suppress(SteersmanError):
            await client.delete(Job, job.key, uid=job.metadata.uid, propagation="Background")
    if outcome is None:
        raise OperationRejected(f"Job {job.metadata.name} ended without a report. Run the command again")
    if not outcome.ok:
        raise OperationRejected(f"{outcome.reason}: {outcome.message}")
    return outcome


async def _pods(client: Client, job: Job) -> Sequence[Pod]:
    selector = f"{_JOB_LABEL}={job.metadata.name}"
    return (await client.list(Pod, namespace=job.metadata.namespace, label_selector=selector)).items


async def _wait(client: Client, job: Job, seconds: float) -> None:
    """Wait until the Job has ended. Raises OperationRejected with the problem of its pod."""
    message = f"Job {job.metadata.name} runs"
    try:
        await wait_until_done(
            client,
            job,
            lambda found: ("", message) if job_state(found) == "Running" else None,
            seconds,
            f"it has not ended within {seconds:.0f} s",
        )
    except OperationRejected:
        problem = next((found.message for pod in await _pods(client, job) if (found := problem_of(pod))), "")
        if not problem and (rejection := await find_pod_rejection(client, job)) is not None:
            problem = rejection.problem.message
        if problem:
            raise OperationRejected(f"Job {job.metadata.name} cannot run: {problem}") from None
        raise


async def _outcome(client: Client, job: Job, kind: type[Outcome]) -> Outcome | None:
    for pod in await _pods(client, job):
        with suppress(BadRequest, NotFound):
            async for line in client.logs(pod.key, container=CONTAINER, tail_lines=1):
                if (found := read_outcome(line, kind)) is not None:
                    return found
    return None
