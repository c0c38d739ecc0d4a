"""A cluster with an object store in memory: the agent's reports and the results of Jobs come from the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.job_runner import JobRunner
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, find_condition
from steersman_databases.api import Backup, BackupSpec, BackupStore, BackupStoreSpec
from steersman_databases.api.backups.backup import BackupClusterReference
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.features.backup.specs import job_state
from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_databases.setup import setup

STORE = {
    "s3": {"bucket": "backups"},
    "credentials": {"secretRef": {"name": "keys"}},
    "encryption": {"secretRef": {"name": "key"}},
}


def backup_settings(**fields: Any) -> BackupSettings:
    """``spec.backup`` with the store of the harness, by the wire names of other fields."""
    return decode_builtins({"storeRef": {"name": "store"}, **fields}, BackupSettings)


@dataclass
class ReachableStore:
    """A probe of an object store that is always reachable."""

    claims: list[tuple[str, str]]

    async def check(self, access: StoreAccess) -> ProbeReport:
        """Implements ``StoreProbe``."""
        assert access.bucket == "backups"
        return ProbeReport()

    async def claim(self, access: StoreAccess, path: str, identity: ArchiveIdentity) -> None:
        """Implements ``StoreProbe``."""
        assert access.bucket == "backups"
        self.claims.append((path, identity.cluster_uid))


@dataclass
class BackupHarness(ClusterHarness):
    """A cluster harness with a ``BackupStore``.

    Attributes:
        claims: paths whose identity was created in the store, with the UID of the cluster.
        stored: backups in the store, as the catalog lists them.
        succeeds: False to let every backup Job fail.
    """

    claims: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    stored: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    succeeds: bool = True

    def setup(self, manager: Manager) -> None:
        """Adds the operator's controllers, with a store in memory."""
        setup(
            manager,
            sql_engine_for=self.sql_engine,
            postgresql_factory=self.engine_parts,
            store_probe=ReachableStore(self.claims),
        )

    async def create_store(self, **spec: Any) -> None:
        """Create the store with its Secrets, as reachable. ``spec`` replaces fields of its spec."""
        for name, data in (
            ("keys", {"ACCESS_KEY_ID": b"id", "SECRET_ACCESS_KEY": b"k"}),
            ("key", {"passphrase": b"p"}),
        ):
            metadata = meta.ObjectMeta(name=name, namespace=KEY.namespace)
            await self.client.apply(core.Secret(metadata=metadata, data=data))
        metadata = ObjectMeta(name="store", namespace=KEY.namespace)
        declared = decode_builtins({**STORE, **spec}, BackupStoreSpec)
        await self.client.create(BackupStore(metadata=metadata, spec=declared))

    def now_text(self) -> str:
        """The present, as RFC 3339."""
        return self.runtime.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def report(self, state: str = "Archiving", **archive: Any) -> None:
        """Report the catalog, as the agent of the primary does."""
        document = {
            "format": 1,
            "at": self.now_text(),
            "backups": self.stored,
            "archive": {"state": state, "message": f"state {state}", **archive},
        }
        patch = MergePatch({"data": {"catalog.json": json.dumps(document)}})
        await self.client.patch(ConfigMap, NAMES.backup_catalog, patch)

    async def request(self, name: str, **fields: Any) -> Backup:
        """Create a ``Backup`` on demand."""
        spec = BackupSpec(cluster_ref=BackupClusterReference(name=KEY.name), **fields)
        return await self.client.create(Backup(metadata=ObjectMeta(name=name, namespace=KEY.namespace), spec=spec))

    def backup(self, name: str) -> Backup | None:
        """A ``Backup`` as it is now."""
        return self.server.read(Backup, ObjectKey(KEY.namespace, name))

    def backups(self) -> dict[str, str]:
        """Phases of all ``Backup`` objects by name."""
        return {b.metadata.name: b.status.phase or "" for b in self.server.read_all(Backup)}

    def jobs(self, component: str = "backup") -> Sequence[Job]:
        """Jobs of backups, or of verifications."""
        return [
            j for j in self.server.read_all(Job) if j.metadata.labels.get("app.kubernetes.io/component") == component
        ]

    def verifications(self) -> Sequence[Job]:
        """Jobs of verifications that run."""
        return [j for j in self.jobs("verification") if job_state(j) == "Running"]

    def verdict(self, name: str) -> str:
        """Status and reason of the condition ``Verified`` of a backup, or ""."""
        found = self.backup(name)
        condition = None if found is None else find_condition(found.status.conditions, "Verified")
        return "" if condition is None else f"{condition.status}/{condition.reason}"

    async def run_verifications(self, result: Mapping[str, object] | None = None, code: int | None = None) -> int:
        """Let all running verifications end. Return how many there were.

        Args:
            result: what their program reports. Defaults to success.
            code: exit code of the program. Defaults to that of the result.
        """
        runner = JobRunner(self.server, self.client, self.hosts.sql, [])
        running = self.verifications()
        for job in running:
            outcome = self._verified(self.document(job)) if result is None else result
            await runner.finish_pod(
                job, json.dumps(outcome) if outcome else "", code or (0 if outcome.get("ok") else 3)
            )
        return len(running)

    def _verified(self, document: Mapping[str, Any]) -> dict[str, object]:
        durations = {"restoreSeconds": 30, "replaySeconds": 6, "checkSeconds": 12, "recoverySeconds": 36}
        measured = {"backup": document["backup_id"], "recoveredTo": self.now_text(), "dataLossSeconds": 4}
        return {"ok": True, "verification": {**measured, **durations, "tables": 3, "rows": 7}}

    def document(self, job: Job) -> Mapping[str, Any]:
        """What a Job should do."""
        config = self.server.read(ConfigMap, job.key)
        assert config is not None
        return json.loads(config.data["job.json"])

    async def run_jobs(self, result: Mapping[str, object] | None = None) -> int:
        """Let all unfinished Jobs end: with a backup in the store, or with ``result``. Return how many there were."""
        runner = JobRunner(self.server, self.client, self.hosts.sql, [])
        unfinished = [job for job in self.jobs() if job_state(job) == "Running"]
        for job in unfinished:
            document = self.document(job)
            outcome = result or (self._complete(document) if self.succeeds else self._fail())
            await runner.finish_pod(job, json.dumps(outcome), 0 if outcome["ok"] else 3)
        return len(unfinished)

    def _complete(self, document: Mapping[str, Any]) -> dict[str, object]:
        if (backup_id := document.get("backup_id")) is not None:
            self.stored = [b for b in self.stored if b["id"] != backup_id]
            return {"ok": True, "expired": [backup_id]}
        start = self.runtime.clock.now()
        entry = {
            "id": f"{start:%Y%m%d-%H%M%S}F",
            "type": "Full" if not self.stored else document["type"],
            "start": self.now_text(),
            "stop": (start + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "size": 1000,
            "stored": 10,
            "timeline": 1,
            "startLSN": "0/2000028",
            "stopLSN": "0/2000150",
            "version": document["version"],
        }
        self.stored = [*self.stored, entry]
        return {"ok": True, "backup": entry}

    def _fail(self) -> dict[str, object]:
        return {"ok": False, "reason": "StoreUnreachable", "message": "The object store cannot be reached"}
