"""Backups of PostgreSQL in stores that lock new objects, or refuse deletions."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.archive.archived_server import (
    ArchivedPostgreSQL,
    Volumes,
    archived_postgresql,
    empty_volumes,
    marks,
    programs,
    run_job,
    write_store,
)
from database_support.archive.bucket_settings import add_user_without_deletion, lock_new_objects
from devcluster.store import local_store
from devcluster.store import programs as store_programs

pytestmark = pytest.mark.xdist_group("postgresql-archive-restricted-store")

KEEP_ONE = {"window_seconds": 0, "minimum_full_backups": 1}


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Generator[ArchivedPostgreSQL]:
    """A primary whose bucket locks new objects for five days."""
    search_path = programs()
    if search_path is None or not store_programs.are_built():
        pytest.skip("run: devcluster servers; devcluster store build")
    with (
        pytest.MonkeyPatch.context() as patch,
        local_store(tmp_path_factory.mktemp("store"), object_lock=True) as store,
    ):
        patch.setenv("PATH", search_path)
        lock_new_objects(store, 5)
        with archived_postgresql(store) as server:
            yield server


def job(port: int, name: str) -> dict[str, object]:
    return {
        "cluster": {"namespace": "orders", "name": "orders", "kind": "PostgreSQLCluster", "uid": "0a1b2c3d"},
        "backup": {"name": name, "uid": name},
        "type": "Full",
        "members": [{"instance": "orders-0", "ordinal": 0, "address": "localhost", "role": "Primary"}],
        "port": port,
        "retention": KEEP_ONE,
    }


def without_deletion(archived: ArchivedPostgreSQL, pod: Volumes, *deletable: str) -> dict[str, object]:
    """Give a pod credentials that may delete the given objects only. Return the fields of its store file."""
    user = add_user_without_deletion(archived.store, *deletable)
    keys: dict[str, object] = {"accessKeyId": user.access_key_id, "secretAccessKey": user.secret_access_key}
    write_store(pod.paths.store_file, archived.store_fields(**keys))
    return keys


def test_backups_with_object_lock_and_without_deletion(archived: ArchivedPostgreSQL) -> None:
    with archived.pgbackrest_server() as (port, pod):
        archived.mark("a")
        first = run_job(pod, "backup", job(port, "first"))
        assert first.code == 0, first.logs
        second = run_job(pod, "backup", job(port, "second"))
        assert second.code == 0, second.logs
        assert "warning" not in second.result, second.result
        assert second.result["expired"] == [first.result["backup"]["id"]], second.logs

        sentence = (
            "The credentials for bucket backups may not delete objects."
            f" Permit their user to delete objects below {archived.path}."
        )
        keys = without_deletion(archived, pod)
        done = run_job(pod, "backup", job(port, "refused"))
        assert (done.code, done.result["message"]) == (1, sentence), done.logs

        keys = without_deletion(archived, pod, f"{archived.path}/pgbackrest/backup/main/latest")
        ids = [second.result["backup"]["id"]]
        for name in ("third", "fourth"):
            archived.mark(name)
            done = run_job(pod, "backup", job(port, name))
            assert done.code == 0, done.logs
            assert sentence in done.result["warning"]
            ids.append(done.result["backup"]["id"])
        refused = run_job(pod, "expire", {"backup_id": ids[0], "retention": KEEP_ONE})
        assert (refused.code, refused.result["reason"], refused.result["message"]) == (
            1,
            "CredentialsRejected",
            sentence,
        ), refused.logs
    with empty_volumes(archived, **keys) as volumes:
        recovered = run_job(volumes, "recover", {"cluster_uid": "99999999"})
        assert recovered.code == 0, recovered.logs
        assert recovered.result["recovery"]["backup"] == ids[-1]
        assert marks(volumes) == ["a", "third", "fourth"]
