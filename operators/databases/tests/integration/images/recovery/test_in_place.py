"""Plan and recovery of a restore in place, with an archive that goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from database_support.archive.archived_server import (
    CLONE_PATH,
    ArchivedPostgreSQL,
    JobOutcome,
    empty_volumes,
    marks,
    run_job,
    write_store,
)
from database_support.archive.job_process import KILLED
from database_support.archive.story import Story

pytestmark = pytest.mark.xdist_group("postgresql-archive-in-place")

LATEST: dict[str, object] = {"latest": {}}


def preview(story: Story, target: dict[str, str]) -> JobOutcome:
    with empty_volumes(story.server) as volumes:
        # The Job of a plan reads the archive of its own cluster.
        write_store(volumes.paths.store_file, story.server.store_fields())
        done = run_job(volumes, "plan", {"target": target})
        assert not (volumes.paths.volume / ".recovery.json").exists()
        return done


@pytest.mark.parametrize(("kind", "last", "lost"), [("time", "b", 5), ("lsn", "e", 2), ("name", "c", 4)])
def test_plan_names_the_last_restored_commit(story: Story, kind: str, last: str, lost: int) -> None:
    targets = {"time": story.time["b"], "lsn": story.lsn["e"], "name": "before-d"}
    done = preview(story, {kind: targets[kind]})
    assert done.code == 0, done.logs
    plan: dict[str, Any] = done.result["plan"]
    assert (plan["timeline"], plan["newestTimeline"]) == (1, 1)
    assert (plan["lostTransactions"], plan["lostIsMinimum"], plan["overwrites"]) == (lost, False, True)
    reached, expected = datetime.fromisoformat(plan["restoresTo"]), datetime.fromisoformat(story.time[last])
    # Of a position the segment is known, not the commit.
    assert expected - timedelta(seconds=5) <= reached
    assert kind != "time" or reached <= expected


def test_plan_refuses_a_target_after_the_archive(story: Story) -> None:
    done = preview(story, {"time": "2035-01-01T00:00:00Z"})
    assert (done.code, done.result["reason"]) == (3, "TargetNotReached")


def test_recovery_in_place_begins_the_reserved_timeline(story: Story) -> None:
    with empty_volumes(story.server) as volumes:
        fields: dict[str, object] = {"target": {"time": story.time["b"]}, "timeline": 1, "new_timeline": 6}
        done = run_job(volumes, "recover", {"cluster_uid": "99999999", **fields})
        assert done.code == 0, done.logs
        assert done.result["recovery"]["timeline"] == 6
        own = f"{CLONE_PATH}/pgbackrest/archive/main/17-1"
        assert f"{own}/00000006.history" not in story.server.store.keys(own), "no timeline that never served"
        assert marks(volumes) == ["a", "b"]


def test_invalid_synchronous_standbys_of_the_source_are_ignored(archived: ArchivedPostgreSQL) -> None:
    configuration = archived.paths.postgresql_data / "postgresql.conf"
    valid = configuration.read_text()
    # Patroni writes this until it knows a standby, and the running server ignores it.
    configuration.write_text(f"{valid}\nsynchronous_standby_names = 'ANY None (*)'\n")
    archived.pgbackrest("--type=full", "--start-fast", "backup")
    configuration.write_text(valid)
    archived.archive_all()
    with empty_volumes(archived) as volumes:
        done = run_job(volumes, "recover", {"cluster_uid": "99999999", "target": LATEST})
        assert done.code == 0, done.logs


def overwrite(story: Story, kind: str, name: str, timeline: int) -> dict[str, object]:
    """The Job of a restore over present data."""
    targets = {"time": story.time[name], "lsn": story.lsn[name]}
    fields = {"timeline": 1, "new_timeline": timeline, "overwrite": f"restore-{timeline}"}
    return {"cluster_uid": "99999999", "target": {kind: targets[kind]}, **fields}


@pytest.mark.parametrize("separate_wal", [False, True], ids=["one-volume", "two-volumes"])
def test_overwrite_restores_the_differences(story: Story, separate_wal: bool) -> None:
    with empty_volumes(story.server, separate_wal=separate_wal) as volumes:
        assert run_job(volumes, "recover", {"cluster_uid": "99999999", "target": {"lsn": story.lsn["e"]}}).code == 0
        assert marks(volumes) == ["a", "b", "c", "d", "e"]
        unchanged = volumes.paths.postgresql_data / "base/1/PG_VERSION"
        inode = unchanged.stat().st_ino
        job = overwrite(story, "time", "b", 6)
        for moment in ("planned", "restored", "promoted", "marked"):
            done = run_job(volumes, "recover", job, moment=moment)
            assert done.code == KILLED, done.logs
        done = run_job(volumes, "recover", job)
        assert done.code == 0, done.logs
        assert unchanged.stat().st_ino == inode
        assert marks(volumes) == ["a", "b"]
        assert run_job(volumes, "recover", job).result == done.result
        # The result of the earlier restore does not complete a later one.
        again = run_job(volumes, "recover", overwrite(story, "time", "b", 7))
        assert (again.code, again.result["recovery"]["timeline"]) == (0, 7), again.logs
        assert marks(volumes) == ["a", "b"]


def test_overwrite_of_another_target_begins_again(story: Story) -> None:
    with empty_volumes(story.server) as volumes:
        assert run_job(volumes, "recover", {"cluster_uid": "99999999", "target": {"lsn": story.lsn["e"]}}).code == 0
        failed = run_job(volumes, "recover", overwrite(story, "time", "b", 6), moment="restored")
        assert failed.code == KILLED
        done = run_job(volumes, "recover", overwrite(story, "lsn", "c", 7))
        assert done.code == 0, done.logs
        assert marks(volumes) == ["a", "b", "c"]
