"""Restores into a server that archives: the operator's part on TCP, and the Job's program."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from database_support.archive.archived_server import (
    ArchivedPostgreSQL,
    JobOutcome,
    empty_volumes,
    give,
    run_job,
    write_store,
)
from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import Restore, RestoreSpec
from steersman_databases.engines.postgresql.sql.accounts.restore_account import COPIES
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification
from steersman_databases.engines.sql.restore_account import CopyOutcome, CopyTarget
from steersman_databases.features.restore import model
from steersman_databases.features.restore.specs import request_document

PASSWORD = "a password: with \\ and '"
_SUPERUSER_PASSWORD = "postgres"


@dataclass
class RestoreHarness:
    """A primary that accepts the operator on an address of its own, and the Jobs of restores.

    Args:
        address: of the loopback interface, with the default port.
    """

    source: ArchivedPostgreSQL
    address: str
    jobs: list[JobOutcome] = field(default_factory=list[JobOutcome])

    @property
    def server(self) -> DatabaseServer:
        """The server as the operator connects to it."""
        return DatabaseServer(
            engine="postgresql",
            endpoint=ServerEndpoint(self.address, 5432),
            login=Login("postgres", _SUPERUSER_PASSWORD),
            verification=Verification(TLSMode.DISABLE),
        )

    def restore(self, name: str, only: Sequence[dict[str, str]], time: str, **fields: Any) -> Restore:
        """Return an object that restores as of a time."""
        spec = {"clusterRef": {"name": "orders"}, "target": {"time": time}, "only": only, **fields}
        metadata = ObjectMeta(name=name, namespace="default", uid=str(uuid.uuid4()))
        return Restore(metadata=metadata, spec=decode_builtins(spec, RestoreSpec))

    def target(self, restore: Restore) -> CopyTarget:
        return model.copy_target(restore, PASSWORD)

    def prepare(self, restore: Restore) -> None:
        asyncio.run(self._run(COPIES.prepare(self.server, self.target(restore))))

    def finish(self, restore: Restore, owner: str = "") -> CopyOutcome:
        return asyncio.run(self._run(COPIES.finish(self.server, self.target(restore), owner)))

    def discard(self, restore: Restore) -> None:
        asyncio.run(self._run(COPIES.discard(self.server, self.target(restore))))

    async def _run(self, operation: Any) -> Any:
        return await operation

    def job(self, restore: Restore) -> JobOutcome:
        """Run the program in a pod of its own."""
        time = restore.spec.target.time if restore.spec.target else None
        document: dict[str, object] = {
            "target": {"time": time.isoformat()} if time else {"latest": {}},
            "server": {"host": self.address, "port": 5432, "database": "", "tls": "Disable"},
            "restore": request_document(restore),
        }
        with empty_volumes(self.source) as volumes:
            write_store(volumes.paths.store_file, self.source.store_fields())
            for name, text in (("username", model.account_name(restore)), ("password", PASSWORD)):
                volumes.paths.owner.mkdir(exist_ok=True, mode=0o700)
                (volumes.paths.owner / name).write_text(text)
            volumes.paths.server.mkdir(exist_ok=True, mode=0o700)
            give(volumes.directory)
            done = run_job(volumes, "restore", document)
        assert PASSWORD not in done.logs
        return done

    def complete(self, restore: Restore) -> CopyOutcome:
        """Run all parts of a restore."""
        self.prepare(restore)
        done = self.job(restore)
        assert done.code == 0, done.logs
        return self.finish(restore, done.result["restore"]["owner"])

    def roles(self) -> list[str]:
        """Return the temporary accounts that are left."""
        return [name for (name,) in self.sql("SELECT rolname FROM pg_roles WHERE rolname ~ '^steersman_restore'")]

    def sql(self, *statements: str, database: str = "postgres", user: str = "postgres") -> list[Any]:
        """Run statements and return the rows of the last one."""
        rows: list[Any] = []
        with psycopg.connect(host=str(self.source.paths.run), user=user, dbname=database, autocommit=True) as session:
            for statement in statements:
                cursor = session.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows


@contextmanager
def restore_harness(source: ArchivedPostgreSQL) -> Generator[RestoreHarness]:
    """Let a primary accept passwords on an address of its own."""
    process = os.getpid()
    address = f"127.{1 + process % 250}.{process // 250 % 250}.7"
    hba = source.paths.postgresql_data / "pg_hba.conf"
    hba.write_text("local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n")
    give(hba)
    source.sql(f"ALTER ROLE postgres PASSWORD '{_SUPERUSER_PASSWORD}'")
    source.sql(f"ALTER SYSTEM SET listen_addresses = '{address}'")
    source.stop()
    source.start()
    yield RestoreHarness(source, address)
