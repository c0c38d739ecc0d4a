"""`steersman-instance recover` with PostgreSQL, pgBackRest and an object store."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from database_support.archive.archived_server import (
    ArchivedPostgreSQL,
    JobOutcome,
    Volumes,
    empty_volumes,
    marks,
    recovered_server,
    run_job,
)
from database_support.archive.job_process import KILLED
from database_support.archive.story import Story

pytestmark = pytest.mark.xdist_group("postgresql-archive-recovery")

TARGETS = {
    "latest": ("a", "b", "c", "d", "e", "f", "g"),
    "time": ("a", "b"),
    "lsn": ("a", "b", "c", "d", "e"),
    "name": ("a", "b", "c"),
}


LATEST: dict[str, object] = {"latest": {}}


def target(story: Story, kind: str) -> dict[str, object]:
    targets: dict[str, dict[str, object]] = {
        "latest": LATEST,
        "time": {"time": story.time["b"]},
        "lsn": {"lsn": story.lsn["e"]},
        "name": {"name": "before-d"},
    }
    return targets[kind]


def recover(volumes: Volumes, *, moment: str = "", **job: object) -> JobOutcome:
    return run_job(volumes, "recover", {"cluster_uid": "99999999", **job}, moment=moment)


@pytest.mark.requirement("overview/backup-and-recovery", "pattern/backups")
@pytest.mark.parametrize("kind", TARGETS)
def test_recovery_reaches_exactly_the_target(story: Story, kind: str) -> None:
    with empty_volumes(story.server, separate_wal=kind == "time") as volumes:
        done = recover(volumes, target=target(story, kind))
        assert done.code == 0, done.logs
        found = done.result["recovery"]
        assert found == json.loads((volumes.paths.volume / "recovered.json").read_text())["recovery"]
        assert found["timeline"] == 2
        assert found["sourceTimeline"] == 1
        assert found["recoveredTo"] <= story.time[TARGETS[kind][-1]]
        data = volumes.paths.postgresql_data
        assert (data / "pg_wal").is_symlink() == (kind == "time")
        assert [name for name in ("recovery.signal", "postmaster.opts") if (data / name).exists()] == []
        assert "restore_command" not in (data / "postgresql.auto.conf").read_text()
        own = "orders/postgresqlcluster.clone/99999999/pgbackrest/archive/main/17-1"
        assert f"{own}/00000002.history" in story.server.store.keys(own)
        assert marks(volumes) == list(TARGETS[kind])


@pytest.mark.parametrize(
    "moments",
    [("planned", "restored"), ("replaying", "promoted", "stopped"), ("marked", "adopted")],
    ids=lambda moments: "-".join(moments),
)
def test_recovery_continues_after_a_kill(story: Story, moments: Sequence[str]) -> None:
    with empty_volumes(story.server, separate_wal=True) as volumes:
        for moment in moments:
            done = recover(volumes, target=target(story, "time"), moment=moment)
            assert done.code == KILLED, done.logs
            served = (volumes.paths.postgresql_data / "PG_VERSION").exists()
            assert served == (moment == "adopted"), f"killed when {moment}"
        done = recover(volumes, target=target(story, "time"))
        assert done.code == 0, done.logs
        again = recover(volumes, target=target(story, "time"))
        assert again.result == done.result
        assert sorted(file.name for file in volumes.paths.volume.iterdir()) == [".lock", "pgdata", "recovered.json"]
        assert marks(volumes) == ["a", "b"]


def test_recovery_of_another_target_begins_again(story: Story) -> None:
    with empty_volumes(story.server) as volumes:
        assert recover(volumes, target=target(story, "time"), moment="restored").code == KILLED
        assert recover(volumes, target=target(story, "name")).code == 0
        refused = recover(volumes, target=target(story, "time"))
        assert (refused.code, refused.result["reason"]) == (3, "VolumeNotEmpty")
        assert marks(volumes) == ["a", "b", "c"]


def test_recovery_of_a_recovered_cluster(story: Story) -> None:
    with empty_volumes(story.server) as volumes:
        assert recover(volumes, target=target(story, "lsn")).code == 0
        with recovered_server(volumes, archive=True) as clone:
            clone.pgbackrest("--type=full", "--start-fast", "backup")
            clone.mark("clone")
            clone.archive_all()
            with empty_volumes(clone) as second:
                done = recover(second)
                assert done.code == 0, done.logs
                assert (done.result["recovery"]["sourceTimeline"], done.result["recovery"]["timeline"]) == (2, 3)
                assert marks(second) == ["a", "b", "c", "d", "e", "clone"]


def test_recovery_leaves_out_an_abandoned_timeline(archived: ArchivedPostgreSQL) -> None:
    story = Story(archived)
    story.mark("kept")
    archived.pgbackrest("--type=full", "--start-fast", "backup")
    story.mark("fork")
    story.mark("abandoned")
    # pgBackRest alone would choose this backup, which the recovery leaves behind.
    archived.pgbackrest("--type=incr", "--start-fast", "backup")
    story.mark("abandoned, too")
    archived.archive_all()
    archived.rewind(story.lsn["fork"])
    story.mark("new")
    archived.archive_all()
    with empty_volumes(archived) as volumes:
        done = recover(volumes, target=LATEST)
        assert done.code == 0, done.logs
        assert marks(volumes)[-3:] == ["kept", "fork", "new"]
    with empty_volumes(archived) as volumes:
        done = recover(volumes, target={"time": story.time["abandoned"]})
        assert done.code == 0, done.logs
        assert marks(volumes)[-3:] == ["kept", "fork", "abandoned"]
