# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Release logic without side effects: which release should run, and why.

``update_records`` returns the state to store before the controller acts on it. ``status_conditions`` returns the
phase and the conditions for users.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from steersman import Condition, find_condition, is_true
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap

from my_operator import resources
from my_operator.api.v1.myapp import Failure, Migration, MyApp, MyAppStatus, Phase, Release
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database


@dataclass(frozen=True)
class ObservedState:
    """Observed objects of one MyApp.

    Attributes:
        app: the MyApp, with the last written status.
        deployment: its Deployment, or None.
        database: its Database, or None.
        jobs: its migration Jobs, including terminating ones.
        config_maps: its ConfigMaps, one per release with settings.
    """

    app: MyApp
    deployment: Deployment | None
    database: Database | None
    jobs: tuple[Job, ...]
    config_maps: tuple[ConfigMap, ...]

    @property
    def running(self) -> Release | None:
        """Release in the Deployment, or None."""
        return resources.release_of(self.deployment.spec.template.spec) if self.deployment else None

    @property
    def migration_job(self) -> Job | None:
        """Job that migrates the current database to the desired version, or None."""
        return next((job for job in self.jobs if self.is_current_migration(job)), None)

    def is_current_migration(self, job: Job) -> bool:
        """Return True if a Job migrates this database to the desired version.

        A Job with other settings is replaced, unless it has completed.
        """
        meta = job.metadata
        for_this_database = (
            self.database is not None and meta.annotations.get(resources.DATABASE_UID) == self.database.metadata.uid
        )
        return (
            for_this_database
            and meta.deletion_timestamp is None
            and job.key == resources.migration_key(self.app, self.app.image)
            and (_finish_message(job, "Complete") != "" or self._has_desired_settings(job))
        )

    def _has_desired_settings(self, job: Job) -> bool:
        return resources.release_of(job.spec.template.spec) == self.app.release


@dataclass(frozen=True)
class ReleaseRecords:
    """Release state that is stored in the status.

    Attributes:
        last_good: the release of the last complete rollout, or None.
        failed: failure of the desired release, or None.
        migrated: the last successful migration; None without a database.
    """

    last_good: Release | None
    failed: Failure | None
    migrated: Migration | None

    @classmethod
    def from_status(cls, status: MyAppStatus) -> ReleaseRecords:
        """Read the records from a status."""
        return cls(status.release, status.failed, status.migrated)


def update_records(observed: ObservedState) -> ReleaseRecords:
    """Return the records after this observation."""
    app = observed.app
    previous = ReleaseRecords.from_status(app.status)
    failed = previous.failed if previous.failed is not None and previous.failed.release == app.release else None
    records = ReleaseRecords(previous.last_good, failed, _last_migration(observed, previous.migrated))
    if failed is not None:
        return records
    if (
        observed.running == app.release
        and is_rollout_complete(observed.deployment)
        and not needs_migration(observed, records)
    ):
        return replace(records, last_good=app.release)
    return replace(records, failed=_detect_failure(observed, records))


def needs_migration(observed: ObservedState, records: ReleaseRecords) -> bool:
    """Return True if the desired version needs a migration first.

    A rollback needs no migration: the previous version must work with a migrated database.
    """
    if not observed.app.spec.database.enabled:
        return False
    last_migration = records.migrated
    if last_migration is None or (
        observed.database is not None and last_migration.database != observed.database.metadata.uid
    ):
        return True
    return observed.app.image not in (last_migration.image, records.last_good and records.last_good.image)


def release_to_run(observed: ObservedState, records: ReleaseRecords) -> Release | None:
    """Return the release for the Deployment; None without a Deployment."""
    if records.failed is not None:
        return records.last_good
    if needs_migration(observed, records):
        return observed.running
    return observed.app.release


def obsolete_config_maps(observed: ObservedState) -> list[ConfigMap]:
    """Return the ConfigMaps that no release needs. Until a rollout is complete, all are needed."""
    release = observed.app.release
    is_complete = observed.running == release and is_rollout_complete(observed.deployment)
    if observed.app.status.release != release or not is_complete:
        return []
    return [c for c in observed.config_maps if c.metadata.name != release.config]


def obsolete_migrations(observed: ObservedState) -> list[Job]:
    """Return the migration Jobs of other versions, or of a disabled database.

    The current Job stays after it has finished, for its logs. It also prevents a late create request of a previous
    leader from running the migration again.
    """
    return [
        job
        for job in observed.jobs
        if job.metadata.deletion_timestamp is None
        and not (observed.is_current_migration(job) and (observed.app.spec.database.enabled or is_finished(job)))
    ]


def is_finished(job: Job) -> bool:
    """Return True if a Job is complete or has failed."""
    return any(_finish_message(job, kind) for kind in ("Complete", "Failed"))


def can_migrate(observed: ObservedState, records: ReleaseRecords) -> bool:
    """Return True if a migration is due and can start."""
    due = records.failed is None and needs_migration(observed, records)
    return due and is_database_ready(observed.database) and not observed.jobs


def status_conditions(observed: ObservedState, records: ReleaseRecords) -> tuple[Phase, tuple[Condition, ...]]:
    """Return the phase and the conditions ``Ready`` and ``Degraded``."""
    phase, reason, message = _progress(observed, records)
    failed = phase in ("RolledBack", "Failed")
    ready = Condition(type="Ready", status="True" if phase == "Ready" else "False", reason=reason, message=message)
    degraded = Condition(
        type="Degraded",
        status="True" if failed else "False",
        reason=reason if failed else "AsExpected",
        message=message if failed else "No failure.",
    )
    return phase, (ready, degraded)


def is_rollout_complete(deployment: Deployment | None) -> bool:
    """Return True if exactly the updated replicas exist and are available."""
    if deployment is None or not _is_observed(deployment):
        return False
    status, desired = deployment.status, deployment.spec.replicas
    return all((n or 0) == desired for n in (status.updated_replicas, status.replicas, status.available_replicas))


def is_database_ready(database: Database | None) -> bool:
    """Return True if applications can connect."""
    if database is None or database.status is None or database.metadata.deletion_timestamp is not None:
        return False
    return is_true(database.status.conditions, "Ready")


def _last_migration(observed: ObservedState, previous: Migration | None) -> Migration | None:
    if not observed.app.spec.database.enabled:
        return None
    if observed.database is not None and _finish_message(observed.migration_job, "Complete"):
        return Migration(image=observed.app.image, database=observed.database.metadata.uid)
    return previous


def _detect_failure(observed: ObservedState, records: ReleaseRecords) -> Failure | None:
    """Return a new failure of the desired release, which is not retried."""
    release = observed.app.release
    if needs_migration(observed, records) and (message := _finish_message(observed.migration_job, "Failed")):
        return Failure(release=release, reason="MigrationFailed", message=message)
    if (
        records.last_good not in (None, release)
        and observed.running == release
        and (message := _stalled_message(observed.deployment))
    ):
        return Failure(release=release, reason="RolloutFailed", message=message)
    return None


def _finish_message(job: Job | None, kind: Literal["Complete", "Failed"]) -> str:
    """Return the message of a Job's condition, or empty."""
    finished = (c for c in (job.status.conditions if job else ()) if c.type == kind and c.status == "True")
    return next((c.message or c.reason or kind for c in finished), "")


def _stalled_message(deployment: Deployment | None) -> str:
    """Return the message of a rollout without progress, or empty."""
    if deployment is None or not _is_observed(deployment):
        return ""
    found = (c for c in deployment.status.conditions if c.type == "Progressing")
    stuck = (c for c in found if c.status == "False" and c.reason == "ProgressDeadlineExceeded")
    return next((c.message or "no progress" for c in stuck), "")


def _is_observed(deployment: Deployment) -> bool:
    return (deployment.status.observed_generation or 0) >= (deployment.metadata.generation or 0)


def _progress(observed: ObservedState, records: ReleaseRecords) -> tuple[Phase, str, str]:
    """Return phase, reason, and a message with advice."""
    if records.failed is not None:
        return _failure_progress(observed, records, records.failed)
    if needs_migration(observed, records):
        return _migration_progress(observed)
    deployment, app = observed.deployment, observed.app
    if records.last_good == observed.running == app.release and is_rollout_complete(deployment):
        return "Ready", "AllPodsReady", f"{app.spec.replicas} of {app.spec.replicas} pods run {app.spec.version}"
    if message := _stalled_message(deployment):
        advice = f"check its pods: kubectl get pods -n {app.metadata.namespace} -l {_selector(app)}"
        return (
            "Failed",
            "RolloutFailed",
            f"{message}; there is no previous version to roll back to. {advice[0].upper()}{advice[1:]}",
        )
    ready = (deployment.status.updated_replicas or 0) if deployment else 0
    return "RollingOut", "RollingOut", f"{ready} of {app.spec.replicas} pods run {app.spec.version}"


def _failure_progress(observed: ObservedState, records: ReleaseRecords, failed: Failure) -> tuple[Phase, str, str]:
    app = observed.app
    version = app.spec.version
    if failed.reason == "MigrationFailed":
        job = resources.migration_key(app, failed.release.image).name
        advice = f"Check: kubectl logs -n {app.metadata.namespace} job/{job}"
        problem = f"the migration to {version} failed ({failed.message})"
    else:
        advice = f"Check: kubectl get events -n {app.metadata.namespace}, or the logs of its pods"
        problem = f"the rollout of {version} failed ({failed.message})"
    retry = "then correct spec.version or spec.config. To retry the same release, set another one first"
    if (good := records.last_good) is not None:
        running = good.version if good.image != failed.release.image else "the release with the previous settings"
        return "RolledBack", failed.reason, f"{problem}; {running} is running. {advice}, {retry}"
    return "Failed", failed.reason, f"{problem}; no version is running. {advice}, {retry}"


def _migration_progress(observed: ObservedState) -> tuple[Phase, str, str]:
    app, database = observed.app, observed.database
    if observed.migration_job is not None:
        return (
            "Migrating",
            "Migrating",
            f"{observed.migration_job.metadata.name} migrates the database to {app.spec.version}",
        )
    if is_database_ready(database):
        return "Migrating", "Migrating", "waiting for a previous migration to end"
    condition = find_condition(database.status.conditions, "Ready") if database and database.status else None
    detail = f": {condition.reason}: {condition.message}" if condition else ""
    return "Pending", "WaitingForDatabase", f"the Database {app.metadata.name} is not ready{detail}"


def _selector(app: MyApp) -> str:
    return ",".join(f"{name}={value}" for name, value in resources.selector_labels(app).items())
