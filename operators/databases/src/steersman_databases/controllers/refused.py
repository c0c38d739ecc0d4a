"""Finds out why a StatefulSet or a Job has no pod: a quota, a limit or an admission policy refuses it.

A Deployment has the condition ReplicaFailure for that. These have none: their controllers tell it in an Event.
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
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.trouble import Trouble

_AGAIN_SECONDS = 10.0
_NEVER = datetime.min.replace(tzinfo=UTC)
_BEFORE = (" failed error: ", "Error creating: ")
"""What a StatefulSet's controller, and a Job's, say before the API server's words."""
_POD_OF_A_JOB = re.compile(r'^pods "[^"]*"')


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found for a StatefulSet, by its UID, and when. Forgotten with the process."""

    uid: str
    at: float
    trouble: Trouble | None


class Refused:
    """Of all clusters. One for a controller."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._clusters: dict[ObjectKey, _Look] = {}

    async def look(self, cluster: ObjectKey, observed: Observed) -> Trouble | None:
        """Why the first instance without a pod has none, where somebody refused it.

        The API server keeps Events in no cache, so they are not asked for each time.
        """
        stateful = (i.statefulset for i in observed.instances if i.pod is None and not i.stopped)
        lacking = next(filter(None, stateful), None)
        if lacking is None:
            self.forget(cluster)
            return None
        uid, now = lacking.metadata.uid, self._clock.monotonic()
        known = self._clusters.get(cluster)
        if known is None or known.uid != uid or now - known.at >= _AGAIN_SECONDS:
            known = self._clusters[cluster] = _Look(uid, now, await self._find(lacking))
        return known.trouble

    async def _find(self, stateful: StatefulSet) -> Trouble | None:
        refusal = await refusal_of(self._client, stateful)
        return None if refusal is None else refusal.trouble

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone, or has its pods."""
        self._clusters.pop(cluster, None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod is made, and since when."""

    trouble: Trouble
    since: datetime


async def refusal_of(client: Client, maker: StatefulSet | Job) -> Refusal | None:
    """What the last pod that ``maker`` was to have was refused with; None where it was made.

    Args:
        client: one that asks the API server.
    """
    about = f"involvedObject.uid={maker.metadata.uid}"
    try:
        found = await client.list(Event, namespace=maker.metadata.namespace, field_selector=about)
    except ApiError:
        # What is known without must not be kept back for it.
        return None
    made = max((_last_of(e) for e in found.items if e.reason == "SuccessfulCreate"), default=_NEVER)
    # Of a pod that was made in the same second nobody refused the next one yet.
    refused = [e for e in found.items if e.reason == "FailedCreate" and _last_of(e) > made]
    if not refused:
        return None
    message = max(refused, key=_last_of).message or ""
    said = next(filter(None, (message.partition(words)[2] for words in _BEFORE)), message)
    if isinstance(maker, Job):
        # Each of its pods has another name, and no news is told again.
        said = _POD_OF_A_JOB.sub("it", said)
    trouble = Trouble("InstanceRefused", f"the API server takes no pod of {maker.metadata.name}: {said}")
    # A message may be older than the last pod, and come again.
    since = min(e.first_timestamp or _last_of(e) for e in refused)
    return Refusal(trouble, max(since, made))


def _last_of(event: Event) -> datetime:
    return event.last_timestamp or event.event_time or _NEVER
