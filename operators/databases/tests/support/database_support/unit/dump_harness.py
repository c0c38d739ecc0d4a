"""A Database on a server with dumps, in memory: the results of Jobs come from the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from database_support.unit.backup_harness import STORE, ReachableStore
from database_support.unit.job_runner import JobRunner
from database_support.unit.users_harness import UsersHarness
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.manager import Manager
from steersman.meta import Condition, FrozenDict, ObjectKey, ObjectMeta, decode_builtins, find_condition
from steersman_databases.api import Backup, BackupSpec, BackupStore, BackupStoreSpec, Database
from steersman_databases.api.backups.backup import BackupDatabaseReference
from steersman_databases.api.backups.backup_common import StoreReference
from steersman_databases.features.backup.model import TRIGGER_LABEL
from steersman_databases.features.backup.specs import job_state
from steersman_databases.setup import setup

KEY = ObjectKey("default", "shop")
BACKUP: Mapping[str, Any] = {"storeRef": {"name": "store"}}
HOURLY: Mapping[str, Any] = {**BACKUP, "schedules": [{"name": "hourly", "schedule": "0 * * * *"}]}


@dataclass
class DumpHarness(UsersHarness):
    """A server at ``HOST`` and an object store.

    Attributes:
        claims: paths whose identity was created in the store, with the UID of the Database.
        dumps: in the store, the oldest first.
        kept: newest dumps that retention leaves.
        refusal: reason and message of every Job that fails; None to let all succeed.
    """

    claims: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    dumps: list[str] = field(default_factory=list[str])
    kept: int = 2
    refusal: tuple[str, str] | None = None

    def setup(self, manager: Manager) -> None:
        """Adds the controllers, with a store in memory."""
        setup(manager, sql_engine_for=self.sql_engine, target=self.target, store_probe=ReachableStore(self.claims))

    async def create_store(self, **spec: Any) -> None:
        """Create the store with its Secrets. ``spec`` replaces fields of its spec."""
        await self.secret("keys", {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "k"})
        await self.secret("key", {"passphrase": "p"})
        metadata = ObjectMeta(name="store", namespace=KEY.namespace)
        declared = decode_builtins({**STORE, **spec}, BackupStoreSpec)
        await self.client.create(BackupStore(metadata=metadata, spec=declared))

    async def request(self, name: str, **fields: Any) -> Backup:
        """Create a ``Backup`` of the Database on demand."""
        spec = BackupSpec(database_ref=BackupDatabaseReference(name=KEY.name), **fields)
        return await self.client.create(Backup(metadata=ObjectMeta(name=name, namespace=KEY.namespace), spec=spec))

    async def create_dump(self, name: str = "before", **status: Any) -> None:
        """Create the completed ``Backup`` of a deleted Database."""
        # The controller of Backup makes no discovered backups.
        labels = FrozenDict[str, str]({TRIGGER_LABEL: "Discovered"})
        metadata = ObjectMeta(name=name, namespace=KEY.namespace, labels=labels)
        spec = BackupSpec(database_ref=BackupDatabaseReference(name="old"))
        created = await self.client.create(Backup(metadata=metadata, spec=spec))
        fields: dict[str, Any] = {
            "phase": "Completed",
            "backup_id": "20260101T000000Z",
            "path": "default/database.old/0123abcd",
            "engine": "postgresql",
            "version": "17.5",
            "store": StoreReference(name="store", namespace=KEY.namespace),
        }
        await self.client.apply_status(created, type(created.status)(**(fields | status)))

    @property
    def found(self) -> Database:
        """The Database as it is now."""
        found = self.server.read(Database, KEY)
        assert found is not None
        return found

    def of_database(self, type_: str) -> Condition | None:
        """A condition of the Database."""
        return find_condition(self.found.status.conditions, type_)

    def reason(self, type_: str) -> str:
        """Status and reason of a condition of the Database, such as ``False/NoBackup``."""
        condition = self.of_database(type_)
        return "" if condition is None else f"{condition.status}/{condition.reason}"

    def text(self, type_: str) -> str:
        """Message of a condition of the Database."""
        condition = self.of_database(type_)
        return "" if condition is None else condition.message

    def backups(self) -> dict[str, str]:
        """Phases of all ``Backup`` objects by name."""
        return {b.metadata.name: b.status.phase or "" for b in self.server.read_all(Backup)}

    def jobs(self) -> Sequence[Job]:
        """Jobs of dumps and restores."""
        return self.server.read_all(Job)

    def document(self, job: Job) -> Mapping[str, Any]:
        """What a Job should do."""
        config = self.server.read(ConfigMap, job.key)
        assert config is not None
        return json.loads(config.data["job.json"])

    async def run_jobs(self) -> int:
        """Let all unfinished Jobs end. Return how many there were."""
        runner = JobRunner(self.server, self.client, self.sql, [])
        unfinished = [job for job in self.jobs() if job_state(job) == "Running"]
        for job in unfinished:
            outcome = self._outcome(self.document(job))
            await runner.finish_pod(job, json.dumps(outcome), 0 if outcome["ok"] else 3)
        return len(unfinished)

    async def dumped(self, name: str, phase: str = "Completed") -> Backup:
        """Run Jobs until a dump has ended."""
        for _ in range(600):
            await self.run_jobs()
            if self.backups().get(name) == phase:
                found = self.server.read(Backup, ObjectKey(KEY.namespace, name))
                assert found is not None
                return found
            await self.runtime.clock.sleep(1)
        raise AssertionError(f"{name} is not {phase}: {self.backups()}")

    def _outcome(self, document: Mapping[str, Any]) -> dict[str, Any]:
        if self.refusal is not None:
            return {"ok": False, "reason": self.refusal[0], "message": self.refusal[1]}
        if "source" in document:
            return {"ok": True, "restore": {"version": "17.5"}}
        if "backup" not in document:
            dump_id = document.get("backup_id", self.dumps[-1] if self.dumps else "last")
            return {"ok": True, "restore": {"backup": dump_id, "version": "17.5"}}
        start = self.runtime.clock.now()
        stop = start + timedelta(seconds=1)
        self.dumps.append(f"{start:%Y%m%dT%H%M%SZ}-{len(self.dumps)}")
        expired, self.dumps = self.dumps[: -self.kept], self.dumps[-self.kept :]
        entry = {
            "id": self.dumps[-1],
            "type": "Full",
            "start": start.isoformat(),
            "stop": stop.isoformat(),
            "size": 1000,
            "stored": 10,
            "version": "17.5",
        }
        return {"ok": True, "backup": entry, "expired": expired}
