"""Imports of running servers into databases of servers and clusters, in virtual time."""

from __future__ import annotations

from typing import Any

from database_support.fake_server.engine import InMemoryServer
from database_support.unit.database_harness import DatabaseHarness
from database_support.unit.dump_harness import DumpHarness
from database_support.unit.job_runner import JobRunner
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database
from steersman_databases.api.database import DatabaseBootstrap
from steersman_databases.api.secret_references import referenced_secrets
from steersman_databases.sql.database.specs import dedicated_cluster
from steersman_testing import virtual_time

JOB = ObjectKey("default", "shop-restore")
SOURCE: dict[str, Any] = {"host": "old.example.com", "databaseName": "legacy", "credentials": {"name": "reader"}}


@virtual_time
async def test_import_completes_before_database_is_ready() -> None:
    world = DumpHarness()
    async with world.operator():
        await world.database(bootstrap={"import": SOURCE})
        await world.until("started", lambda: world.server.read(Job, JOB) is not None)
        (job,) = world.jobs()
        document, pod = world.document(job), job.spec.template.spec
        (container,) = pod.containers
        assert list(container.command)[:2] == ["steersman-instance", "load"]
        assert document["source"] == {
            "host": "old.example.com",
            "port": 5432,
            "database": "legacy",
            "tls": "VerifyFull",
            "administrator": "",
        }
        assert document["server"]["database"] == "shop"
        mounts = {each.name: each.mount_path for each in container.volume_mounts}
        assert mounts["source"] == "/etc/steersman/import"
        assert world.server.read(Secret, JOB) is None
        await world.until("reported", lambda: world.reason("Ready") == "False/Recovering")
        assert world.text("Recovered") == "Job shop-restore imports database legacy of old.example.com"
        await world.run_jobs()
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
        assert world.reason("Recovered") == "True/RecoveryCompleted"
        assert world.text("Recovered") == "database legacy of old.example.com was imported"
        for kind in (Job, ConfigMap):
            await world.until("cleaned up", lambda kind=kind: world.server.read(kind, JOB) is None)
        await world.runtime.clock.sleep(600)
        assert not world.jobs()


@virtual_time
async def test_refused_import_runs_again_without_its_job() -> None:
    world = DumpHarness(refusal=("RightsMissing", "User reader cannot read public.t. Grant it SELECT."))
    async with world.operator():
        await world.database(bootstrap={"import": SOURCE})
        await world.until("started", world.jobs)
        await world.run_jobs()
        await world.until("failed", lambda: world.reason("Ready") == "False/RecoveryFailed")
        assert "RightsMissing: User reader cannot read public.t." in world.text("Recovered")
        assert "To try again, delete Job shop-restore" in world.text("Recovered")
        world.refusal = None
        await world.client.delete(Job, JOB, propagation="Background")
        await world.until("started again", world.jobs)
        await world.run_jobs()
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")


def own_server() -> Database:
    """Return a Database with its own server that imports."""
    spec = {"engine": "postgresql", "version": "17", "bootstrap": {"import": SOURCE}}
    return decode_builtins({"metadata": {"name": "shop", "namespace": "default"}, "spec": spec}, Database)


def test_own_cluster_of_an_import_starts_empty() -> None:
    database = own_server()
    assert "bootstrap" not in dedicated_cluster(database, database.storage_size).spec


def test_secrets_of_the_source_are_referenced() -> None:
    found = {each.field: (each.key.name, each.keys) for each in referenced_secrets(own_server())}
    assert found == {"spec.bootstrap.import.credentials": ("reader", ("username", "password"))}


@virtual_time
async def test_database_with_own_server_is_ready_after_import() -> None:
    world = DatabaseHarness(engine="postgresql")
    bootstrap = decode_builtins({"import": SOURCE}, DatabaseBootstrap)
    async with world.operator():
        await world.create(bootstrap=bootstrap)
        key = ObjectKey("default", "orders-restore")
        await world.until("started", lambda: world.server.read(Job, key) is not None)
        job = world.server.read(Job, key)
        assert job is not None
        assert world.sql.databases.keys() >= {"orders"}
        await world.until("reported", lambda: world.reason == "Recovering")
        runner = JobRunner(world.server, world.client, InMemoryServer(), [])
        await runner.finish_pod(job, '{"ok": true, "restore": {"version": "16.1"}}', 0)
        await world.ready()
