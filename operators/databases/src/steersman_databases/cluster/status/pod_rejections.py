"""Rejections of pods by a quota, a limit or an admission policy.

Deployments have the condition ReplicaFailure. StatefulSets and Jobs report rejections by Events only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from steersman.api.apps_v1 import StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Event
from steersman.client import Client
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.pod_problems import PodProblem

_RECHECK_SECONDS = 10.0
_NEVER = datetime.min.replace(tzinfo=UTC)
_MESSAGE_PREFIXES = (" failed error: ", "Error creating: ")
"""Prefixes of Event messages before the API server's response."""
_JOB_POD_NAME = re.compile(r'^pods "[^"]*"')


@dataclass(frozen=True, slots=True)
class _Check:
    """Result for a StatefulSet, by UID, and its time. Dropped with the process."""

    uid: str
    checked_at: float
    problem: PodProblem | None


class PodRejections:
    """Rejections of all clusters of a controller."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._checks: dict[ObjectKey, _Check] = {}

    async def detect(self, cluster: ObjectKey, state: ClusterState) -> PodProblem | None:
        """Return the rejection of the first instance without a pod.

        Events are not cached, so the result is kept for some seconds.
        """
        stateful = (i.statefulset for i in state.instances if i.pod is None and not i.stopped)
        without_pod = next(filter(None, stateful), None)
        if without_pod is None:
            self.forget(cluster)
            return None
        uid, now = without_pod.metadata.uid, self._clock.monotonic()
        known = self._checks.get(cluster)
        if known is None or known.uid != uid or now - known.checked_at >= _RECHECK_SECONDS:
            known = self._checks[cluster] = _Check(uid, now, await self._find(without_pod))
        return known.problem

    async def _find(self, stateful: StatefulSet) -> PodProblem | None:
        refusal = await find_pod_rejection(self._client, stateful)
        return None if refusal is None else refusal.problem

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a cluster."""
        self._checks.pop(cluster, None)


@dataclass(frozen=True, slots=True)
class PodRejection:
    """Cause of a rejection, and its start."""

    problem: PodProblem
    since: datetime


async def find_pod_rejection(client: Client, owner: StatefulSet | Job) -> PodRejection | None:
    """Return the rejection of the last pod of ``owner``. None if it was created.

    Args:
        client: a live client.
    """
    involved = f"involvedObject.uid={owner.metadata.uid}"
    try:
        found = await client.list(Event, namespace=owner.metadata.namespace, field_selector=involved)
    except ApiError:
        # The other results must not depend on this request.
        return None
    created = max((_last_seen(e) for e in found.items if e.reason == "SuccessfulCreate"), default=_NEVER)
    # Times have a resolution of one second: a rejection in the second of a creation may precede it.
    rejected = [e for e in found.items if e.reason == "FailedCreate" and _last_seen(e) > created]
    if not rejected:
        return None
    message = max(rejected, key=_last_seen).message or ""
    reported = next(filter(None, (message.partition(words)[2] for words in _MESSAGE_PREFIXES)), message)
    if isinstance(owner, Job):
        # Each pod of a Job has another name, and an equal message emits no new Event.
        reported = _JOB_POD_NAME.sub("it", reported)
    problem = PodProblem("PodRejected", f"pod creation for {owner.metadata.name} was rejected: {reported}")
    # A message may be older than the last pod, and come again.
    since = min(e.first_timestamp or _last_seen(e) for e in rejected)
    return PodRejection(problem, max(since, created))


def _last_seen(event: Event) -> datetime:
    return event.last_timestamp or event.event_time or _NEVER
