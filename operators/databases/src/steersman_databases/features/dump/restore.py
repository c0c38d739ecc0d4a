"""Restore of a dump or running server into a new ``Database``.

The condition ``Recovered`` remembers that it is complete. Its Job is the progress: a crash of the operator repeats
nothing that the server has committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from steersman.api.apply import batch
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod, Secret, ServiceAccount
from steersman.cache import CachedClient
from steersman.controller import EventRecorder
from steersman.errors import AlreadyExists, ApiError
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, BackupStore, Database
from steersman_databases.api.backups.backup_common import RecoverySettings
from steersman_databases.api.backups.import_source import ImportSettings
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.status.pod_problems import problem_of
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.core.api_errors import is_rejection
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.engines.workload_identity import identity_of_document
from steersman_databases.features.backup.model import Condition
from steersman_databases.features.backup.queries import controls
from steersman_databases.features.backup.specs import JobPlan, JobResult, config_map_of, job_state, result_of
from steersman_databases.features.backup_store.access import StoreProblem
from steersman_databases.features.backup_store.model import find_store, store_document
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.dump.connection import (
    JobConnection,
    NotConnectable,
    connection_of,
    import_connection,
)
from steersman_databases.features.dump.report import RECOVERED, is_restored
from steersman_databases.features.dump.specs import dump_labels, load_job, load_plan, store_account, store_secret


class DumpSourceUnavailable(Exception):
    """The source is missing, unsuitable or not permitted. ``reason`` is one of ``Recovered``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RestoreStage:
    """Restores dumps and imports servers into databases. One for a controller.

    Args:
        secrets: reads the Secrets of object stores.
    """

    def __init__(self, client: CachedClient, events: EventRecorder, secrets: SecretReader) -> None:
        self._client = client
        self._events = events
        self._secrets = secrets

    async def ensure(self, database: Database) -> Condition | None:
        """Advance the restore by one step, once database and owner exist.

        Returns:
            The condition ``Recovered``; None if neither restore nor import is declared.
        """
        if not database.restores_dump:
            return None
        if is_restored(database):
            await self._clean_up(database)
            found = next(each for each in database.status.conditions if each.type == RECOVERED)
            return True, found.reason, found.message
        key = DatabaseNames(database.key).restore_job
        job = await get_cached_or_live(self._client, Job, key)
        if job is None:
            return await self._start(database)
        if not controls(database, job):
            return False, "NameConflict", f"Job {key.name} exists and does not belong to this Database"
        return await self._follow(database, job)

    async def _start(self, database: Database) -> Condition:
        key = DatabaseNames(database.key).restore_job
        for kind in (ConfigMap, Secret, ServiceAccount):
            present = await get_cached_or_live(self._client, kind, key)
            if present is not None and not controls(database, present):
                name = kind.api_resource.kind
                return False, "NameConflict", f"{name} {key.name} exists and does not belong to this Database"
        try:
            connection = connection_of(database)
            if (settings := database.import_settings) is not None:
                source = import_connection(database, settings)
                plan = load_plan(database, connection, source=source)
                return await self._create(database, plan, load_job(database, plan, connection, source))
            return await self._start_restore(database, connection)
        except (DumpSourceUnavailable, StoreProblem) as unavailable:
            return False, unavailable.reason, str(unavailable)
        except NotConnectable as error:
            return False, "ReferenceNotPermitted", str(error)

    async def _start_restore(self, database: Database, connection: JobConnection) -> Condition:
        """Start the restore of a dump. Raises as `_source`."""
        settings = None if database.spec.bootstrap is None else database.spec.bootstrap.recovery
        assert settings is not None
        store, path, backup_id = await self._source(database, settings)
        document = await store_document(
            self._secrets, store, engine=database.engine, path=path, cluster_uid="", dumps=True
        )
        plan, identity = load_plan(database, connection, backup_id), identity_of_document(document)
        return await self._create(database, plan, load_job(database, plan, connection, identity=identity), document)

    async def _create(
        self, database: Database, plan: JobPlan, job: batch.Job, store: Mapping[str, object] | None = None
    ) -> Condition:
        """Create the Job, its ConfigMap and, with `store`, the store's Secret."""
        name, labels = plan.key.name, dump_labels(database)
        try:
            if store is not None:
                await self._client.apply(store_secret(plan.key, labels, store), owner=database)
                if (identity := identity_of_document(store)) is not None:
                    await self._client.apply(store_account(plan.key, labels, identity), owner=database)
            await self._client.apply(config_map_of(plan, labels), owner=database)
            with suppress(AlreadyExists):
                # Not applied: nothing of a Job can be changed.
                await self._client.create(job, owner=database)
                self._events.normal(database, "Created", f"created Job {name}")
        except ApiError as error:
            if not is_rejection(error):
                raise
            return False, "PodRejected", f"the API server rejects the Job: {error}"
        return None, "Recovering", f"Job {name} {_progress(database)}"

    async def _follow(self, database: Database, job: Job) -> Condition:
        name, state = job.metadata.name, job_state(job)
        found = await self._client.list(Pod, index=(CLUSTER_INDEX, str(database.key)))
        pods = [pod for pod in found if controls(job, pod)]
        result = result_of(job, pods)
        if state == "Complete":
            return True, "RecoveryCompleted", _summary(database, result)
        if state == "Failed":
            return False, "RecoveryFailed", f"Job {name}: {_failure(result)}. To try again, delete Job {name}"
        if (problem := next((p for pod in pods if (p := problem_of(pod)) is not None), None)) is not None:
            return None, "Recovering", f"Job {name} cannot run: {problem.message}"
        if not pods and (rejection := await find_pod_rejection(self._client.live, job)) is not None:
            return None, "Recovering", f"Job {name} cannot run: {rejection.problem.message}"
        return None, "Recovering", f"Job {name} {_progress(database)}"

    async def _source(self, database: Database, settings: RecoverySettings) -> tuple[BackupStore, str, str | None]:
        """Return store, path and id of the dump. None as id is the last one.

        Raises:
            DumpSourceUnavailable: there is no such dump, or it is not permitted.
            StoreProblem: its object store does not exist, or is not permitted.
        """
        namespace = database.metadata.namespace
        if settings.backup is None:
            assert settings.store is not None
            store = await find_store(self._client, settings.store.store_ref, namespace)
            return store, _own_path(namespace, store, settings.store.path), None
        name = settings.backup.name
        backup = await get_live(self._client, Backup, ObjectKey(namespace, name))
        if backup is None:
            raise DumpSourceUnavailable("SourceNotFound", f"Backup {name} does not exist in namespace {namespace}")
        status = backup.status
        if status.phase != "Completed" or not status.backup_id or not status.path or status.store is None:
            raise DumpSourceUnavailable("SourceNotFound", f"Backup {name} is not completed")
        if backup.spec.database_ref is None:
            message = f"Backup {name} is of a cluster: only dumps of a Database can be restored into a server"
            raise DumpSourceUnavailable("SourceMismatch", message)
        if status.engine != database.engine:
            message = f"Backup {name} has engine {status.engine}, and this Database has {database.engine}"
            raise DumpSourceUnavailable("SourceMismatch", message)
        store = await find_store(self._client, status.store, namespace)
        return store, _own_path(namespace, store, status.path), status.backup_id

    async def _clean_up(self, database: Database) -> None:
        """Delete the Job and the copy of the store's credentials.

        A ServiceAccount stays as long as the Database: the operator may not delete such objects.
        """
        key = DatabaseNames(database.key).restore_job
        for kind in (Job, ConfigMap, Secret):
            present = await self._client.get_or_none(kind, key)
            if present is not None and controls(database, present) and present.metadata.deletion_timestamp is None:
                await self._client.delete(kind, key, uid=present.metadata.uid, propagation="Background")


def _own_path(namespace: str, store: BackupStore, path: str) -> str:
    """Return the path unless it is of another namespace. The owner of the store owns all of its content."""
    if namespace not in (store.metadata.namespace, path.partition("/")[0]):
        raise DumpSourceUnavailable(
            "SourceNotPermitted", f"path {path} of BackupStore {store.key} does not belong to namespace {namespace}"
        )
    return path


def _failure(result: JobResult | None) -> str:
    if result is None or not result.message:
        return "it failed without a report. Read the logs of its pods"
    message = result.message.rstrip(".")
    return f"{result.reason}: {message}" if result.reason else message


def _progress(database: Database) -> str:
    source = database.import_settings
    return "restores the dump" if source is None else f"imports {_name_of(database, source)}"


def _name_of(database: Database, source: ImportSettings) -> str:
    return f"database {source.database_name or database.database_name} of {source.host}"


def _summary(database: Database, result: JobResult | None) -> str:
    found = None if result is None else result.document.get("restore")
    restored = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    source = database.import_settings
    if source is not None:
        text = f"{_name_of(database, source)} was imported"
    else:
        text = f"dump {restored.get('backup', '')} was restored" if restored else "the dump was restored"
    return f"{text}. {restored['warning']}" if "warning" in restored else text
