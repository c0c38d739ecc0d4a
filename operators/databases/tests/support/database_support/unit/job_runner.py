"""The Job controller, and ``psql`` on a server that is a model: what runs the initial configuration in memory."""

from __future__ import annotations

from collections.abc import Container, Mapping

from database_support.fake_server.engine import InMemoryServer
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.client import Client, MergePatch
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, OwnerReference
from steersman.observability.runtime import Clock
from steersman_databases.engines.postgresql.sql import post_init_sql
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject
from steersman_testing import InMemoryApiServer

BROKEN_SQL = "BROKEN"
"""SQL that holds this is refused, with these words."""
ERROR_MESSAGE = 'psql:configmap/sql/a.sql:1: ERROR:  syntax error at or near "BROKEN"'


class JobRunner:
    """Runs each Job once, as a whole or not at all.

    Args:
        sql: the server on which they run.
        applied: gets the SQL of each one that came through.
    """

    def __init__(self, server: InMemoryApiServer, client: Client, sql: InMemoryServer, applied: list[str]) -> None:
        self._server = server
        self._client = client
        self._sql = sql
        self._applied = applied
        self.clock: Clock | None = None

    async def sync(self, stuck: Container[str] = ()) -> None:
        """Runs what there is to run, but for the Jobs of these names."""
        for job in self._server.read_all(Job):
            (container,) = job.spec.template.spec.containers
            if job.metadata.name in stuck:
                continue
            if container.name == "psql" and not job.status.conditions and (text := self._text(job)) is not None:
                words = self._run(job, text)
                await self.finish_pod(job, words, post_init_sql.NON_RETRYABLE_EXIT_CODES[1] if words else 0)

    def _text(self, job: Job) -> str | None:
        """The SQL in the order of its arguments; None where a file is missing, and a pod would wait for it."""
        (container,) = job.spec.template.spec.containers
        names = [path for flag, path in zip(container.command, container.command[1:], strict=False) if flag == "-f"]
        texts: list[str] = []
        for path in names:
            kind, name, key = path.split("/")
            found_in: type[Secret | ConfigMap] = Secret if kind == "secret" else ConfigMap
            found = self._server.read(found_in, ObjectKey(job.key.namespace, name))
            if found is None or key not in found.data:
                return None
            held = found.data[key]
            texts.append(held if isinstance(held, str) else held.decode())
        return "\n".join(texts)

    def _run(self, job: Job, text: str) -> str:
        """What ``psql`` says; empty where all went well."""
        (container,) = job.spec.template.spec.containers
        environment = {variable.name: (variable.value or "").replace("$$", "$") for variable in container.env}
        database, owner = environment["PGDATABASE"], environment["PGUSER"]
        inside, marker = self._sql.contents[database], post_init_sql.marker(database)
        if marker in inside.objects:
            return "already exists"
        if BROKEN_SQL in text:
            return ERROR_MESSAGE
        self._sql.create(SecuredObject(SecurableKind.SCHEMA, database, post_init_sql.SCHEMA), owner)
        self._sql.create(marker, owner)
        self._applied.append(text)
        return ""

    async def record_start(self, job: Job) -> None:
        """Writes down that it was let run."""
        if job.status.start_time is None and self.clock is not None:
            body = {"status": {"startTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}}
            await self._client.patch(Job, job.key, MergePatch(body), subresource="status")

    async def block_pod(self, job: Job, status: Mapping[str, object]) -> None:
        """Its pod does not start, which its ``status`` says; where empty, it gets none. A deadline ends that."""
        if job.spec.active_deadline_seconds is None:
            if (
                status
                and not (pod := await self.start_pod(job)).status.conditions
                and not pod.status.container_statuses
            ):
                await self._client.patch(Pod, pod.key, MergePatch({"status": status}), subresource="status")
            return
        for pod in self._server.read_all(Pod):
            if any(reference.uid == job.metadata.uid for reference in pod.metadata.owner_references):
                await self._client.delete(Pod, pod.key)
                await self._client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
        failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
        await self._client.patch(Job, job.key, MergePatch({"status": {"conditions": [failed]}}), subresource="status")

    async def start_pod(self, job: Job) -> Pod:
        """Its pod, which runs, and does not end when it is deleted."""
        for pod in self._server.read_all(Pod):
            if any(reference.uid == job.metadata.uid for reference in pod.metadata.owner_references):
                return pod
        reference = OwnerReference(
            api_version="batch/v1", kind="Job", name=job.metadata.name, uid=job.metadata.uid, controller=True
        )
        labels = {**job.spec.template.metadata.labels, "batch.kubernetes.io/job-name": job.metadata.name}
        metadata = ObjectMeta(
            generate_name=f"{job.metadata.name}-",
            namespace=job.key.namespace,
            labels=FrozenDict[str, str](labels),
            owner_references=(reference,),
            finalizers=("test/hangs",),
        )
        return await self._client.create(Pod(metadata=metadata, spec=job.spec.template.spec))

    async def finish_pod(self, job: Job, said: str, exit_code: int) -> None:
        """Its pod ends with these words, and the Job with it."""
        (container,) = job.spec.template.spec.containers
        pod = await self.start_pod(job)
        await self._client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
        state = {"terminated": {"exitCode": exit_code, "message": said}}
        statuses = [{"name": container.name, "image": "", "state": state}]
        body = {"status": {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": statuses}}
        await self._client.patch(Pod, pod.key, MergePatch(body), subresource="status")
        condition = {"type": "Failed" if exit_code else "Complete", "status": "True", "message": "its policy says so"}
        done: dict[str, object] = {"conditions": [condition]}
        if not exit_code and self.clock is not None:
            done["completionTime"] = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._client.patch(Job, job.key, MergePatch({"status": done}), subresource="status")
