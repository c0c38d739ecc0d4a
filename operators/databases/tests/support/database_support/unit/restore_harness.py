"""A cluster with an archive and restores: the accounts on its server are a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from database_support.unit.backup_harness import BackupHarness, ReachableStore, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.job_runner import JobRunner
from database_support.unit.shared_start import shared_start
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, find_condition
from steersman_databases.api import Restore, RestoreSpec
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.restore_account import (
    CopyDatabaseMissing,
    CopyNameTaken,
    CopyOutcome,
    CopyServer,
    CopyTarget,
)
from steersman_databases.features.backup.specs import job_state
from steersman_databases.setup import setup

NAME = "before-drop"
ITEM: Mapping[str, str] = {"database": "shop", "table": "orders"}


@dataclass
class FakeCopies:
    """Accounts and copies on the server.

    Attributes:
        accounts: the copy of each temporary account, by name.
        owners: of copies that are complete or foreign, by name.
        databases: present ones.
        unreachable: True if the server does not respond.
    """

    accounts: dict[str, str] = field(default_factory=dict[str, str])
    passwords: set[str] = field(default_factory=set[str])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    databases: set[str] = field(default_factory=lambda: {"shop"})
    unreachable: bool = False

    @property
    def server(self) -> CopyServer:
        return CopyServer(self.prepare, self.finish, self.discard)

    async def prepare(self, server: DatabaseServer, target: CopyTarget) -> None:
        """Implements ``PrepareCopy``."""
        self._check(server)
        if target.is_schema and target.database not in self.databases:
            raise CopyDatabaseMissing(target.database)
        if target.into in self.owners:
            raise CopyNameTaken("schema", target.into)
        assert target.account.password
        self.accounts[target.account.username] = target.into
        self.passwords.add(target.account.password)

    async def finish(self, server: DatabaseServer, target: CopyTarget, owner: str) -> CopyOutcome:
        """Implements ``FinishCopy``."""
        self._check(server)
        if self.accounts.pop(target.account.username, None) is not None:
            self.owners[target.into] = owner
        return CopyOutcome(owner, tuple(False for _ in target.tables))

    async def discard(self, server: DatabaseServer, target: CopyTarget) -> None:
        """Implements ``DiscardCopy``."""
        self._check(server)
        self.accounts.pop(target.account.username, None)

    def _check(self, server: DatabaseServer) -> None:
        assert server.superuser_login is not None
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")


@dataclass
class RestoreHarness(BackupHarness):
    """A backup harness with restores."""

    copies: FakeCopies = field(default_factory=FakeCopies)

    def setup(self, manager: Manager) -> None:
        """Adds the operator's controllers, with models of store and server."""
        setup(
            manager,
            sql_engine_for=self.sql_engine,
            postgresql_factory=self.engine_parts,
            store_probe=ReachableStore(self.claims),
            copy_servers={"postgresql": self.copies.server, "mysql": self.copies.server},
        )

    @shared_start
    async def declare(self, instances: int = 1, spec: Mapping[str, Any] | None = None, **backup: Any) -> None:
        """Create a cluster that archives.

        Args:
            spec: further fields of the cluster.
            backup: further settings of ``spec.backup``.
        """
        await self.create_store()
        await self.create(instances=instances, backup=backup_settings(**backup), **(spec or {}))
        await self.until("catalog", lambda: self.server.read(ConfigMap, NAMES.backup_catalog), 60)
        time = self.now_text()
        self.stored = [{"id": "20260101-000000F", "type": "Full", "start": time, "stop": time, "size": 9}]
        await self.report()
        await self.until("discovered", lambda: list(self.backups().values()) == ["Completed"], 60)

    async def restore(
        self, name: str = NAME, only: Sequence[Mapping[str, str]] | None = (ITEM,), **fields: Any
    ) -> None:
        """Create a ``Restore`` of the cluster. With None it restores all of it in place."""
        spec = {
            "clusterRef": {"name": KEY.name, "kind": self.kind.api_resource.kind},
            "target": {"time": "2026-01-01T00:00:00Z"},
            **({} if only is None else {"only": list(only)}),
            **fields,
        }
        spec = {field: value for field, value in spec.items() if value is not None}
        metadata = ObjectMeta(name=name, namespace=KEY.namespace)
        await self.client.create(Restore(metadata=metadata, spec=decode_builtins(spec, RestoreSpec)))

    def found(self, name: str = NAME) -> Restore | None:
        return self.server.read(Restore, ObjectKey(KEY.namespace, name))

    def outcome(self, name: str = NAME) -> str:
        """Phase and reason, such as ``Failed/TableNotFound``."""
        found = self.found(name)
        condition = None if found is None else find_condition(found.status.conditions, "Complete")
        return "" if found is None or condition is None else f"{found.status.phase}/{condition.reason}"

    def text(self, name: str = NAME) -> str:
        found = self.found(name)
        return "" if found is None else found.status.message or ""

    def restores(self) -> Sequence[Job]:
        """Jobs of restores that run."""
        return [j for j in self.jobs("restore") if job_state(j) == "Running"]

    def plan_report(self) -> Mapping[str, object]:
        """The plan of a restore, as the program reports it."""
        return {
            "backup": "20260101-000000F",
            "timeline": 1,
            "newestTimeline": 4,
            "restoresTo": "2025-12-31T23:59:58Z",
            "lostTransactions": 12,
            "lostIsMinimum": True,
            "overwrites": True,
            "sizeBytes": 8192,
        }

    async def run_plans(self, result: Mapping[str, object] | None = None) -> int:
        """Let all running Jobs of plans end. Return how many there were.

        Args:
            result: what their program reports. Defaults to success.
        """
        outcome = result or {"ok": True, "plan": self.plan_report()}
        runner = JobRunner(self.server, self.client, self.hosts.sql, [])
        runner.clock = self.runtime.clock
        running = [job for job in self.restores() if "-restore-plan-" in job.metadata.name]
        for job in running:
            await runner.finish_pod(job, json.dumps(outcome), 0 if outcome["ok"] else 3)
        return len(running)

    def leftovers(self) -> list[str]:
        """Names of the objects of restores, besides failed Jobs with a time to live."""
        jobs = [j for j in self.jobs("restore") if j.spec.ttl_seconds_after_finished is None]
        kept = {j.metadata.name for j in self.jobs("restore")} - {j.metadata.name for j in jobs}
        others = [*self.server.read_all(ConfigMap), *self.server.read_all(Secret)]
        own = [o for o in others if o.metadata.labels.get("app.kubernetes.io/component") == "restore"]
        maps = [o for o in own if isinstance(o, Secret) or o.metadata.name not in kept]
        return sorted(f"{type(o).__name__}/{o.metadata.name}" for o in (*jobs, *maps))

    async def run_restores(self, result: Mapping[str, object] | None = None) -> int:
        """Let all running Jobs of restores end. Return how many there were.

        Args:
            result: what their program reports. Defaults to success.
        """
        runner = JobRunner(self.server, self.client, self.hosts.sql, [])
        running = self.restores()
        report = {"backup": "20260101-000000F", "recoveredTo": self.now_text(), "owner": "clerk", "sizeBytes": 8192}
        outcome = result or {"ok": True, "restore": report}
        for job in running:
            await runner.finish_pod(job, json.dumps(outcome), 0 if outcome["ok"] else 3)
        return len(running)
