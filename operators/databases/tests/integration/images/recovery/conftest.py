"""One PostgreSQL with an archive in a real object store for all tests of a module."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.archive.archived_server import ArchivedPostgreSQL, archived_postgresql, programs
from database_support.archive.story import Story
from devcluster.store import local_store
from devcluster.store import programs as store_programs


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Generator[ArchivedPostgreSQL]:
    """A primary without backups."""
    search_path = programs()
    if search_path is None or not store_programs.are_built():
        pytest.skip("run: devcluster servers; devcluster store build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", search_path)
        with local_store(tmp_path_factory.mktemp("store")) as store, archived_postgresql(store) as server:
            yield server


@pytest.fixture(scope="module")
def story(archived: ArchivedPostgreSQL) -> Story:
    """Rows a to g; a full backup after a, an incremental one after d; a restore point after c."""
    made = Story(archived)
    made.mark("a")
    archived.pgbackrest("--type=full", "--start-fast", "backup")
    made.mark("b")
    made.mark("c")
    archived.sql("SELECT pg_create_restore_point('before-d')")
    made.mark("d")
    archived.pgbackrest("--type=incr", "--start-fast", "backup")
    made.mark("e")
    archived.archive_all()
    made.mark("f")
    archived.archive_all()
    made.mark("g")
    archived.archive_all()
    return made
