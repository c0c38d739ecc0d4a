"""Recoveries of MySQL that are killed, repeated, or end inside a distributed transaction."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from database_support.servers.mysql_archive import ArchivedServer, archive_of, archived_server, store_document
from database_support.servers.mysql_collecting import collecting, wait_until_stored
from database_support.servers.mysql_job_process import KILLED, run_recovery
from database_support.servers.process import data_directory
from devcluster import database_servers
from devcluster.store import ObjectStore, local_store, programs
from steersman_instance.archive.store_file import parse_store
from steersman_instance.backup.mysql_base import BackupRequest, MysqlArchive, back_up
from steersman_instance.gtids import GtidSet
from steersman_instance.mysqld import running_server
from steersman_instance.paths import InstancePaths

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("mysql-repeated-recovery"),
]
JOB = {"version": "9.7", "cluster_uid": "new"}
CLONE = "default/mysqlcluster.clone/99999999"


@dataclasses.dataclass
class Story:
    """A cluster with marks in a table. Marks `a` and `b` are in its backup.

    Args:
        executed: transactions after each mark.
    """

    server: ArchivedServer
    store: ObjectStore
    archive: MysqlArchive
    path: str
    executed: dict[str, GtidSet] = dataclasses.field(default_factory=dict[str, GtidSet])

    def mark(self, name: str) -> None:
        self.server.sql(f"INSERT INTO shop.marks VALUES ('{name}')")
        self.executed[name] = self.server.server.state().executed

    def back_up(self, directory: Path) -> None:
        request = BackupRequest(donors=[self.server.donor()], host=self.path)
        back_up(request, self.archive, self.server.program, directory / "work", directory / "run")


def archive_at(server: ArchivedServer, store: ObjectStore, path: str) -> MysqlArchive:
    fields = {**store_document(store), "path": path}
    return archive_of(parse_store(fields), server.root, server.paths)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Generator[Story]:
    """Marks a to e. A distributed transaction is prepared before d, and committed after it."""
    assert ROOT is not None
    directory = tmp_path_factory.mktemp("story")
    (directory / "bin").mkdir()
    (directory / "bin/restic").symlink_to(ROOT / "usr/bin/restic")
    with (
        pytest.MonkeyPatch.context() as patch,
        data_directory() as volume,
        local_store(directory / "store") as store,
        archived_server(ROOT, volume / "pod") as server,
    ):
        patch.setenv("PATH", f"{directory / 'bin'}:{os.environ['PATH']}")
        path = store_document(store)["path"]
        made = Story(server, store, archive_at(server, store, path), path)
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.marks (name VARCHAR(20) PRIMARY KEY)")
        made.mark("a")
        with collecting(server, made.archive):
            made.mark("b")
            made.back_up(volume)
            made.mark("c")
            server.sql(
                "XA START 'distributed'",
                "INSERT INTO shop.marks VALUES ('distributed')",
                "XA END 'distributed'",
                "XA PREPARE 'distributed'",
            )
            made.executed["prepared"] = server.server.state().executed
            made.mark("d")
            server.sql("XA COMMIT 'distributed'")
            made.executed["distributed"] = server.server.state().executed
            made.mark("e")
            wait_until_stored(server, made.archive)
        yield made


@contextmanager
def new_volume(story: Story) -> Generator[InstancePaths]:
    """The volume of a new cluster that recovers from the story's archive."""
    with data_directory() as directory:
        (directory / "volume").mkdir()
        source = directory / "source.json"
        source.write_text(json.dumps({**store_document(story.store), "path": story.path}))
        yield InstancePaths(volume=directory / "volume", run=directory / "run", source_store_file=source)


def through(story: Story, name: str, previous: str) -> dict[str, object]:
    """Return the target of the last transaction before a mark's end."""
    return {"gtid": {"through": str(story.executed[name] - story.executed[previous])}}


def marks(story: Story, paths: InstancePaths) -> list[str]:
    with running_server(story.server.program, paths.mysql_data, paths.run, {"skip-log-bin": "ON"}) as server:
        return [str(name) for (name,) in server.query("SELECT name FROM shop.marks ORDER BY name")]


@pytest.mark.parametrize(
    "moments",
    [
        ("planned", "restoring", "restored"),
        ("replaying", "replayed", "recovered"),
        ("replaying", "marked", "adopted"),
    ],
    ids=lambda moments: "-".join(moments),
)
def test_recovery_continues_after_a_kill(story: Story, moments: Sequence[str]) -> None:
    job = {**JOB, "target": through(story, "d", "prepared")}
    with new_volume(story) as paths:
        for moment in moments:
            done = run_recovery(paths, job, story.server.program, moment=moment)
            assert done.code == KILLED, done.logs
            assert paths.mysql_data.exists() == (moment == "adopted"), f"killed when {moment}"
        done = run_recovery(paths, job, story.server.program)
        assert done.code == 0, done.logs
        assert done.result["recovery"]["gtidExecuted"] == str(story.executed["d"])
        assert run_recovery(paths, job, story.server.program).result == done.result
        assert sorted(file.name for file in paths.volume.iterdir()) == [".lock", "mysql", "recovered.json"]
        assert marks(story, paths) == ["a", "b", "c", "d"]


def test_recovery_of_another_target_begins_again(story: Story) -> None:
    with new_volume(story) as paths:
        first = {**JOB, "target": through(story, "d", "prepared")}
        assert run_recovery(paths, first, story.server.program, moment="marked").code == KILLED
        second = {**JOB, "target": through(story, "c", "b")}
        done = run_recovery(paths, second, story.server.program)
        assert done.code == 0, done.logs
        assert done.result["recovery"]["gtidExecuted"] == str(story.executed["c"])
        assert marks(story, paths) == ["a", "b", "c"]


def test_overwrite_replaces_present_data(story: Story) -> None:
    with new_volume(story) as paths:
        done = run_recovery(paths, {**JOB, "target": through(story, "d", "prepared")}, story.server.program)
        assert done.code == 0, done.logs
        (paths.volume / "epoch").write_text("3\n")
        job = {**JOB, "target": through(story, "c", "b"), "overwrite": "first"}
        for moment in ("restoring", "recovered", "marked"):
            assert run_recovery(paths, job, story.server.program, moment=moment).code == KILLED
        done = run_recovery(paths, job, story.server.program)
        assert done.code == 0, done.logs
        assert marks(story, paths) == ["a", "b", "c"]
        assert run_recovery(paths, job, story.server.program).result == done.result
        # The result of the earlier restore does not complete a later one.
        again = run_recovery(paths, {**job, "overwrite": "second"}, story.server.program, moment="restoring")
        assert again.code == KILLED
        assert run_recovery(paths, {**job, "overwrite": "second"}, story.server.program).code == 0
        assert sorted(file.name for file in paths.volume.iterdir()) == [".lock", "mysql", "recovered.json"]
        assert marks(story, paths) == ["a", "b", "c"]


def test_distributed_transaction_can_be_completed(story: Story) -> None:
    """A recovery that ends between its halves has it prepared, as a server after a crash."""
    with new_volume(story) as paths:
        done = run_recovery(paths, {**JOB, "target": through(story, "d", "prepared")}, story.server.program)
        assert done.code == 0, done.logs
        options = {"skip-log-bin": "ON"}
        with running_server(story.server.program, paths.mysql_data, paths.run, options) as server:
            assert [row[3] for row in server.query("XA RECOVER")] == ["distributed"]
            server.query("XA COMMIT 'distributed'")
        assert marks(story, paths) == ["a", "b", "c", "d", "distributed"]


def test_distributed_transaction_is_replayed(story: Story) -> None:
    with new_volume(story) as paths:
        done = run_recovery(paths, {**JOB, "target": {"latest": {}}}, story.server.program)
        assert done.code == 0, done.logs
        assert done.result["recovery"]["gtidExecuted"] == str(story.executed["e"])
        assert marks(story, paths) == ["a", "b", "c", "d", "distributed", "e"]


def test_recovery_of_a_recovered_cluster(story: Story) -> None:
    with data_directory() as directory:
        pod = directory / "clone"
        clone = ArchivedServer(story.server.root, pod)
        clone.certify()
        with new_volume(story) as source:
            paths = dataclasses.replace(source, volume=clone.paths.volume)
            done = run_recovery(paths, {**JOB, "target": through(story, "c", "b")}, clone.program)
            assert done.code == 0, done.logs
        clone.take_back()
        clone.start()
        try:
            second = Story(clone, story.store, archive_at(clone, story.store, CLONE), CLONE)
            with collecting(clone, second.archive):
                second.back_up(directory)
                second.mark("clone")
                wait_until_stored(clone, second.archive)
            with new_volume(second) as paths:
                done = run_recovery(paths, JOB, clone.program)
                assert done.code == 0, done.logs
                found = GtidSet.parse(done.result["recovery"]["gtidExecuted"])
                assert found == second.executed["clone"]
                assert found >= story.executed["c"] and not found & (story.executed["d"] - story.executed["c"])
                assert len(found.intervals) == 2, "the clone has an identity of its own"
                assert marks(second, paths) == ["a", "b", "c", "clone"]
        finally:
            clone.kill()
