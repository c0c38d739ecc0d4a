"""`steersman-instance backup`, `expire` and `final-backup` with PostgreSQL, pgBackRest and an object store."""

from __future__ import annotations

import pytest

from database_support.archive.archived_server import ArchivedPostgreSQL, empty_volumes, give, marks, run_job

pytestmark = pytest.mark.xdist_group("postgresql-archive-backup")

CLUSTER = {"namespace": "orders", "name": "orders", "kind": "PostgreSQLCluster", "uid": "0a1b2c3d"}
DELETE_OLD = {"window_seconds": 0, "minimum_full_backups": 1}


def job(port: int, **changed: object) -> dict[str, object]:
    return {
        "cluster": CLUSTER,
        "backup": {"name": "orders-1", "uid": "first"},
        "type": "Incremental",
        "source": "PreferReplica",
        "members": [{"instance": "orders-0", "ordinal": 0, "address": "localhost", "role": "Primary"}],
        "port": port,
        **changed,
    }


@pytest.mark.requirement("pattern/backup-credentials")
def test_backup_over_mutual_tls_and_retention(archived: ArchivedPostgreSQL) -> None:
    with archived.pgbackrest_server() as (port, pod):
        archived.mark("a")
        first = run_job(pod, "backup", job(port))
        assert first.code == 0, first.logs
        full = first.result["backup"]
        # There was no full backup that an incremental one could depend on.
        assert (full["type"], full["name"], full["trigger"]) == ("Full", "orders-1", "OnDemand")
        assert full["instance"] == "orders-0"
        assert full["stored"] < full["size"]

        # A second pod of the same Job finds what the first one made.
        assert run_job(pod, "backup", job(port)).result["backup"]["id"] == full["id"]

        again = run_job(pod, "backup", job(port, backup={"name": "orders-2", "uid": "second"}))
        incremental = again.result["backup"]
        assert (incremental["type"], incremental["dependsOn"]) == ("Incremental", [full["id"]])

        refused = run_job(pod, "expire", {"backup_id": incremental["id"], "retention": DELETE_OLD})
        assert (refused.code, refused.result["reason"]) == (3, "NeededByRetention"), refused.logs

        third = run_job(
            pod, "backup", job(port, type="Full", backup={"name": "orders-3", "uid": "third"}, retention=DELETE_OLD)
        )
        assert third.code == 0, third.logs
        assert "warning" not in third.result, third.result
        assert third.result["expired"] == [incremental["id"], full["id"]], third.logs
        segments = [
            key for key in archived.store.keys(archived.path) if "/archive/main/17-1/0000000100000000/" in key
        ]
        first_needed = third.result["backup"]["startLSN"]
        assert (
            min(key.rpartition("/")[2][:24] for key in segments)
            == archived.sql(f"SELECT pg_walfile_name('{first_needed}')")[0][0]
        )

        unreachable = run_job(pod, "backup", job(1, backup={"uid": "fourth"}))
        assert (unreachable.code, unreachable.result["reason"]) == (1, "MemberUnreachable"), unreachable.logs


def test_final_backup_has_the_last_row(archived: ArchivedPostgreSQL) -> None:
    running = archived.job("final-backup", {"cluster_uid": "0a1b2c3d"})
    assert (running.code, running.result["reason"]) == (1, "ServerRunning")
    # The archiver is stopped first, so that WAL waits on the volume.
    archived.sql("ALTER SYSTEM SET archive_command = '/bin/false'")
    archived.sql("SELECT pg_reload_conf()")
    archived.mark("last")
    archived.sql("SELECT pg_switch_wal()")
    archived.mark("very last")
    archived.stop()
    done = archived.job("final-backup", {"cluster_uid": "0a1b2c3d"})
    assert done.code == 0, done.logs
    assert done.result["backup"]["trigger"] == "Final"
    assert archived.job("final-backup", {"cluster_uid": "0a1b2c3d"}).result == done.result
    status = archived.paths.postgresql_data / "pg_wal/archive_status"
    assert list(status.glob("*.ready")) == []
    _expect_marks(archived, done.result["backup"]["id"], {"last", "very last"})
    archived.start()


def test_final_backup_after_crash_has_the_last_row(archived: ArchivedPostgreSQL) -> None:
    archived.sql("ALTER SYSTEM SET archive_command = '/bin/false'")
    archived.sql("SELECT pg_reload_conf()")
    archived.mark("waits")
    archived.sql("SELECT pg_switch_wal()")
    archived.mark("crash")
    timeline = archived.timeline()
    archived.crash()
    done = archived.job("final-backup", {"cluster_uid": "0a1b2c3d"})
    assert done.code == 0, done.logs
    assert archived.job("final-backup", {"cluster_uid": "0a1b2c3d"}).result == done.result
    assert done.result["backup"]["timeline"] == timeline
    _expect_marks(archived, done.result["backup"]["id"], {"waits", "crash"})
    archived.start()


def test_final_backup_after_crash_does_not_promote_replica(archived: ArchivedPostgreSQL) -> None:
    timeline = archived.timeline()
    archived.mark("replica")
    archived.stop()
    signal = archived.paths.postgresql_data / "standby.signal"
    signal.touch()
    give(signal)
    archived.start(replica=True)
    archived.crash()
    done = archived.job("final-backup", {"cluster_uid": "0a1b2c3d"})
    assert done.code == 0, done.logs
    assert signal.exists() and done.result["backup"]["timeline"] == timeline
    _expect_marks(archived, done.result["backup"]["id"], {"replica"})
    signal.unlink()
    archived.start()


def _expect_marks(archived: ArchivedPostgreSQL, backup: str, names: set[str]) -> None:
    """Recover a backup into new volumes, and find the rows."""
    with empty_volumes(archived, separate_wal=True) as volumes:
        recovered = run_job(volumes, "recover", {"cluster_uid": "99999999"})
        assert recovered.code == 0, recovered.logs
        assert recovered.result["recovery"]["backup"] == backup
        assert names <= set(marks(volumes))
