# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Which image runs, and why: pure functions of what is.

``recorded`` is what must be remembered before anything is done about it; ``told`` is how it is, for people.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from steersman import Condition, find_condition, is_true
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job

from my_operator import resources
from my_operator.api.v1.myapp import Failure, Migration, MyApp, MyAppStatus, Phase
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database


@dataclass(frozen=True)
class Seen:
    """What there is of one MyApp.

    Attributes:
        app: as its user wants it, with the status that was written last.
        jobs: its migrations, those that are being deleted included.
    """

    app: MyApp
    deployment: Deployment | None
    database: Database | None
    jobs: tuple[Job, ...]

    @property
    def job(self) -> Job | None:
        """The migration to what is wanted, of this very database."""
        return next((job for job in self.jobs if self.is_wanted(job)), None)

    def is_wanted(self, job: Job) -> bool:
        """Whether a Job migrates this database to what is wanted."""
        meta = job.metadata
        of_this = (
            self.database is not None and meta.annotations.get(resources.DATABASE_UID) == self.database.metadata.uid
        )
        return (
            of_this
            and meta.deletion_timestamp is None
            and job.key == resources.migration_key(self.app, self.app.image)
        )


@dataclass(frozen=True)
class Records:
    """What the status remembers.

    Attributes:
        good: the image that last came up whole; empty if none has.
        failed: what is wanted, but failed.
        migrated: the last migration that succeeded; None where there is no database.
    """

    good: str
    failed: Failure | None
    migrated: Migration | None

    @classmethod
    def of(cls, status: MyAppStatus) -> Records:
        """As they were written last."""
        return cls(status.image or "", status.failed, status.migrated)


def recorded(seen: Seen) -> Records:
    """What is to be remembered now."""
    app = seen.app
    former = Records.of(app.status or MyAppStatus())
    failed = former.failed if former.failed is not None and former.failed.image == app.image else None
    records = Records(former.good, failed, _migrated(seen, former.migrated))
    if failed is not None:
        return records
    if runs(seen, app.image) and is_complete(seen.deployment) and not needs_migration(seen, records):
        return replace(records, good=app.image)
    return replace(records, failed=_failure(seen, records))


def needs_migration(seen: Seen, records: Records) -> bool:
    """Whether the database must be migrated before what is wanted may run.

    To go back to the version that served last takes none: it has to cope with what a newer one has migrated.
    """
    if not seen.app.spec.database.enabled:
        return False
    done = records.migrated
    if done is None or (seen.database is not None and done.database != seen.database.metadata.uid):
        return True
    return seen.app.image not in (done.image, records.good)


def image_to_run(seen: Seen, records: Records) -> str:
    """What the Deployment shall run; empty: nothing yet."""
    if records.failed is not None:
        return records.good
    if needs_migration(seen, records):
        return resources.image_of(seen.deployment.spec.template.spec) if seen.deployment else ""
    return seen.app.image


def obsolete_jobs(seen: Seen) -> list[Job]:
    """Migrations to what is no longer wanted.

    That to what is wanted stays, done or failed: for whoever reads its logs, and because a former leader's request
    to make it, should that arrive late, then makes no other one.
    """
    return [job for job in seen.jobs if job.metadata.deletion_timestamp is None and not seen.is_wanted(job)]


def may_migrate(seen: Seen, records: Records) -> bool:
    """Whether the migration can begin: it is needed, the database is ready, and no other one runs."""
    due = records.failed is None and needs_migration(seen, records)
    return due and is_ready(seen.database) and not seen.jobs


def told(seen: Seen, records: Records) -> tuple[Phase, tuple[Condition, ...]]:
    """The phase, and the conditions ``Ready`` and ``Degraded``."""
    phase, reason, message = _progress(seen, records)
    bad = phase in ("RolledBack", "Failed")
    ready = Condition(type="Ready", status="True" if phase == "Ready" else "False", reason=reason, message=message)
    degraded = Condition(
        type="Degraded",
        status="True" if bad else "False",
        reason=reason if bad else "AsExpected",
        message=message if bad else "nothing has failed",
    )
    return phase, (ready, degraded)


def is_complete(deployment: Deployment | None) -> bool:
    """Whether all pods that it wants are there, up to date and available, and no others."""
    if deployment is None or not _is_observed(deployment):
        return False
    status, wanted = deployment.status, deployment.spec.replicas
    return all((n or 0) == wanted for n in (status.updated_replicas, status.replicas, status.available_replicas))


def is_ready(database: Database | None) -> bool:
    """Whether applications can connect."""
    if database is None or database.status is None or database.metadata.deletion_timestamp is not None:
        return False
    return is_true(database.status.conditions, "Ready")


def runs(seen: Seen, image: str) -> bool:
    """Whether the Deployment wants pods of ``image``."""
    return seen.deployment is not None and resources.image_of(seen.deployment.spec.template.spec) == image


def _migrated(seen: Seen, former: Migration | None) -> Migration | None:
    if not seen.app.spec.database.enabled:
        return None
    if seen.database is not None and _has(seen.job, "Complete"):
        return Migration(image=seen.app.image, database=seen.database.metadata.uid)
    return former


def _failure(seen: Seen, records: Records) -> Failure | None:
    """What is wanted has failed just now, and is not to be tried again."""
    image = seen.app.image
    if needs_migration(seen, records) and (said := _has(seen.job, "Failed")):
        return Failure(image=image, reason="MigrationFailed", message=said)
    if records.good not in ("", image) and runs(seen, image) and (said := _is_stuck(seen.deployment)):
        return Failure(image=image, reason="RolloutFailed", message=said)
    return None


def _has(job: Job | None, kind: Literal["Complete", "Failed"]) -> str:
    """What a Job says of its end, if it is that one; else empty."""
    ended = (c for c in (job.status.conditions if job else ()) if c.type == kind and c.status == "True")
    return next((c.message or c.reason or kind for c in ended), "")


def _is_stuck(deployment: Deployment | None) -> str:
    """What a Deployment says of a rollout that makes no progress; else empty."""
    if deployment is None or not _is_observed(deployment):
        return ""
    found = (c for c in deployment.status.conditions if c.type == "Progressing")
    stuck = (c for c in found if c.status == "False" and c.reason == "ProgressDeadlineExceeded")
    return next((c.message or "no progress" for c in stuck), "")


def _is_observed(deployment: Deployment) -> bool:
    return (deployment.status.observed_generation or 0) >= (deployment.metadata.generation or 0)


def _progress(seen: Seen, records: Records) -> tuple[Phase, str, str]:
    """Phase, reason, and a message that says what to do where something is wrong."""
    if records.failed is not None:
        return _after_failure(seen, records, records.failed)
    if needs_migration(seen, records):
        return _migrating(seen)
    deployment, app = seen.deployment, seen.app
    if records.good == app.image and runs(seen, app.image) and is_complete(deployment):
        return "Ready", "AllPodsReady", f"{app.spec.replicas} of {app.spec.replicas} pods run {app.spec.version}"
    if said := _is_stuck(deployment):
        look = f"look at its pods: kubectl get pods -n {app.metadata.namespace} -l {_selector(app)}"
        return "Failed", "RolloutFailed", f"{said}; there is no other version to go back to, so {look}"
    ready = (deployment.status.updated_replicas or 0) if deployment else 0
    return "RollingOut", "RollingOut", f"{ready} of {app.spec.replicas} pods are of {app.spec.version}"


def _after_failure(seen: Seen, records: Records, failed: Failure) -> tuple[Phase, str, str]:
    app = seen.app
    version = app.spec.version
    if failed.reason == "MigrationFailed":
        job = resources.migration_key(app, failed.image).name
        look = f"Read why: kubectl logs -n {app.metadata.namespace} job/{job}"
        what = f"the migration to {version} failed ({failed.message})"
    else:
        look = f"Read why: kubectl get events -n {app.metadata.namespace}, or the logs of its pods"
        what = f"{version} did not come up ({failed.message})"
    retry = "then set spec.version to what is mended; to try the same again, set another one first"
    if records.good:
        return "RolledBack", failed.reason, f"{what}; {records.good.rpartition(':')[2]} serves. {look}, {retry}"
    return "Failed", failed.reason, f"{what}; nothing serves. {look}, {retry}"


def _migrating(seen: Seen) -> tuple[Phase, str, str]:
    app, database = seen.app, seen.database
    if seen.job is not None:
        return "Migrating", "Migrating", f"{seen.job.metadata.name} migrates the database to {app.spec.version}"
    if is_ready(database):
        return "Migrating", "Migrating", "waits until a former migration has ended"
    said = find_condition(database.status.conditions, "Ready") if database and database.status else None
    why = f": {said.reason}: {said.message}" if said else ""
    return "Pending", "WaitingForDatabase", f"the Database {app.metadata.name} is not ready{why}"


def _selector(app: MyApp) -> str:
    return ",".join(f"{name}={value}" for name, value in resources.selector_of(app).items())
