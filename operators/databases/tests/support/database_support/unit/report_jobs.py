"""Jobs of commands that print a report, without pods."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from database_support.unit.plugin import KEY
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer


class EndedJobs:
    """Ends each Job with a line in the logs of its pod.

    `job` and `document` are the last Job and its ``job.json``.
    """

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self.line = ""
        self.job: Job | None = None
        self.document: dict[str, Any] = {}

    async def end(self, config: ConfigMap) -> None:
        """End the Job of a ConfigMap, as the kubelet and the controller do."""
        client, key = Client(self._server), config.key
        self.document = json.loads(config.data["job.json"])
        self.job = await client.get(Job, key)
        pod = ObjectKey(key.namespace, f"{key.name}-x")
        self._server.load(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": pod.name,
                    "namespace": pod.namespace,
                    "labels": {"batch.kubernetes.io/job-name": key.name},
                },
                "spec": {"containers": [{"name": "backup", "image": "i"}]},
            }
        )
        self._server.pod_logs[pod] = ["steersman: reading", self.line]
        ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
        await client.patch(Job, key, MergePatch(ended), subresource="status")

    def left(self) -> int:
        """Return the number of Jobs and ConfigMaps."""
        kinds = (Job, ConfigMap)
        return sum(len(asyncio.run(Client(self._server).list(kind, namespace=KEY.namespace)).items) for kind in kinds)


@pytest.fixture
def ended(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> EndedJobs:
    """A cluster in which Jobs of commands end at once."""
    jobs = EndedJobs(server)
    create = Client.create

    async def created(self: Client, obj: Any, **options: Any) -> Any:
        found = await create(self, obj, **options)
        if isinstance(found, ConfigMap):
            await jobs.end(found)
        return found

    monkeypatch.setattr(Client, "create", created)
    return jobs
