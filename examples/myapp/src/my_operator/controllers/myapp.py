# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Controller of MyApp."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace
from steersman import (
    Condition,
    Manager,
    ReconcileOutcome,
    Reconciler,
    find_condition,
)
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Service
from steersman.cache import InformerOptions
from steersman.errors import Forbidden, Invalid, NameConflict

from my_operator import releases, resources
from my_operator.api.v1.myapp import MyApp
from my_operator.controllers import metrics
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.releases import ObservedState, ReleaseRecords


class MyAppReconciler(Reconciler[MyApp]):
    """Makes the cluster match the spec of each MyApp.

    Release records are written to the status before the controller acts on them, so that a new process continues
    after a crash at any point.
    """

    async def reconcile(self, app: MyApp) -> None:
        """Observe the objects, store the records, apply changes, and report the status."""
        records = releases.update_records(await self._observe(app))
        app = await self._save_records(app, records)
        await self._apply_resources(await self._observe(app), records)
        await self._report_status(await self._observe(app), records)

    async def update_status(self, app: MyApp, outcome: ReconcileOutcome) -> None:
        """Count the reconcile, and report rejected requests in the status."""
        if await self.client.get_or_none(MyApp, app.key) is None:
            return
        metrics.record_reconcile(app.key, outcome)
        if isinstance(outcome.error, (NameConflict, Forbidden, Invalid)):
            reason = "NameTaken" if isinstance(outcome.error, NameConflict) else "Refused"
            refused = Condition(type="Ready", status="False", reason=reason, message=str(outcome.error))
            await self._write_status(app, (refused,))

    async def _observe(self, app: MyApp) -> ObservedState:
        return ObservedState(
            app=app,
            deployment=await self.client.get_or_none(Deployment, app.key),
            database=await self.client.get_or_none(Database, app.key),
            jobs=await self.client.list(Job, namespace=app.metadata.namespace, owner=app),
            config_maps=await self.client.list(ConfigMap, namespace=app.metadata.namespace, owner=app),
        )

    async def _save_records(self, app: MyApp, records: ReleaseRecords) -> MyApp:
        """Store changed records. The resourceVersion rejects records of an outdated observation."""
        if records == ReleaseRecords.from_status(app.status):
            return app
        good, version = records.last_good, app.metadata.resource_version
        status = replace(
            app.status,
            version=good and good.version,
            release=good,
            failed=records.failed,
            migrated=records.migrated,
        )
        return await self.client.apply_status(app, status, resource_version=version)

    async def _apply_resources(self, observed: ObservedState, records: ReleaseRecords) -> None:
        app = observed.app
        await self.client.apply(resources.service(app), owner=app)
        if app.spec.database.enabled:
            await self.client.apply(resources.database(app), owner=app)
        if app.spec.config:
            await self.client.apply(resources.config_map(app), owner=app)
        for job in releases.obsolete_migrations(observed):
            # Foreground deletion waits for the pods, so that only one migration runs.
            await self.client.delete(Job, job.key, uid=job.metadata.uid, propagation="Foreground")
        if releases.can_migrate(observed, records) and observed.database is not None:
            await self.client.apply(resources.migration(app, app.release, observed.database.metadata.uid), owner=app)
        if release := releases.release_to_run(observed, records):
            deployment = resources.deployment(app, release, with_database=records.migrated is not None)
            await self.client.apply(deployment, owner=app)
        await self._delete_obsolete_config_maps(observed)
        await self._delete_unused_database(observed)

    async def _delete_obsolete_config_maps(self, observed: ObservedState) -> None:
        """Delete the ConfigMaps of previous releases.

        The settings of a previous release are stored nowhere else. So the state is read again from the API server:
        a cache that lags could take the last good release for an old one.
        """
        if releases.obsolete_config_maps(observed):
            app = await self.client.live.get(MyApp, observed.app.key)
            for each in releases.obsolete_config_maps(dataclasses.replace(observed, app=app)):
                await self.client.delete(ConfigMap, each.key, uid=each.metadata.uid)

    async def _delete_unused_database(self, observed: ObservedState) -> None:
        """Delete a disabled Database when neither pods nor migrations use it."""
        database = observed.database
        if observed.app.spec.database.enabled or database is None or not database.is_controlled_by(observed.app):
            return
        if not all(map(releases.is_finished, observed.jobs)):
            return
        deployment = observed.deployment
        unused = deployment is None or not resources.has_database(deployment.spec.template.spec)
        if unused and (deployment is None or releases.is_rollout_complete(deployment)):
            await self.client.delete(Database, database.key, uid=database.metadata.uid)

    async def _report_status(self, observed: ObservedState, records: ReleaseRecords) -> None:
        app, deployment = observed.app, observed.deployment
        phase, conditions = releases.status_conditions(observed, records)
        await self._write_status(
            app,
            conditions,
            phase=phase,
            replicas=(deployment.status.replicas or 0) if deployment else 0,
            ready_replicas=(deployment.status.ready_replicas or 0) if deployment else 0,
            selector=",".join(f"{name}={value}" for name, value in resources.selector_labels(app).items()),
        )

    async def _write_status(self, app: MyApp, conditions: tuple[Condition, ...], **fields: Any) -> None:
        """Write a changed status, and an Event if the reason has changed."""
        ready, previous = conditions[0], find_condition(app.status.conditions, "Ready")
        await self.status(app, conditions=conditions, **fields)
        if previous is None or previous.reason != ready.reason:
            failed = fields.get("phase") in ("RolledBack", "Failed", None)
            emit = self.events.warning if failed else self.events.normal
            emit(app, ready.reason, ready.message)

    @classmethod
    def setup_with_manager(cls, manager: Manager) -> None:
        """Declare the watched kinds and the permissions of the controller."""
        manager.cache.informer(MyApp).subscribe(metrics.remove_metrics)
        # Not all ConfigMaps of the cluster.
        manager.cache.configure(ConfigMap, InformerOptions(label_selector=f"app.kubernetes.io/name={resources.NAME}"))
        (
            manager.controller(MyApp)
            .owns(Deployment)
            .owns(Service)
            .owns(Job)
            .owns(ConfigMap)
            .owns(Database)
            .needs(Job, "delete")
            .needs(ConfigMap, "delete")
            .needs(Database, "delete")
            .max_concurrent_reconciles(8)
            .complete(cls)
        )
