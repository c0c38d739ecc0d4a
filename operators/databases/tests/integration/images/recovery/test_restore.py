"""Tables and databases as they were, next to the present ones, with a real archive."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.archive.archived_server import ArchivedPostgreSQL
from database_support.archive.restores import RestoreHarness, restore_harness
from steersman_databases.engines.sql.restore_account import CopyDatabaseMissing, CopyNameTaken

pytestmark = pytest.mark.xdist_group("postgresql-archive-restore")

DATABASE = "shop's = \\x"
"""A name that libpq would read as connection parameters."""
SCHEMA, TABLE = 'my "own"', "Order; Items $$"
QUOTED = '"my ""own"""."Order; Items $$"'


@pytest.fixture(scope="module")
def world(archived: ArchivedPostgreSQL) -> Generator[RestoreHarness]:
    with restore_harness(archived) as found:
        found.sql("CREATE ROLE clerk LOGIN", f'CREATE DATABASE "{DATABASE}" OWNER clerk')
        # Its owner may set these. They must not stop the restore.
        for setting in ("default_transaction_read_only = on", "search_path = nowhere"):
            found.sql(f'ALTER DATABASE "{DATABASE}" SET {setting}')
        found.sql(f'REVOKE ALL ON DATABASE "{DATABASE}", postgres FROM PUBLIC')
        inside(
            found,
            'CREATE SCHEMA "my ""own"""',
            'CREATE TYPE "my ""own""".state AS ENUM (\'new\', \'paid\')',
            "CREATE TABLE public.customers (id int PRIMARY KEY)",
            "INSERT INTO public.customers VALUES (1)",
            f"CREATE TABLE {QUOTED} (id serial PRIMARY KEY, customer int REFERENCES public.customers (id),"
            ' state "my ""own""".state NOT NULL, note text CHECK (note <> \'\'))',
            f"INSERT INTO {QUOTED} (customer, state, note)"
            " SELECT 1, 'new', 'note ' || n FROM generate_series(1, 500) n",
            "CREATE TABLE public.parts (day date, n int) PARTITION BY RANGE (day)",
            'CREATE TABLE "my ""own""".parts_1 PARTITION OF public.parts FOR VALUES FROM (\'2026-01-01\')'
            " TO ('2027-01-01')",
            "INSERT INTO public.parts VALUES ('2026-05-01', 7)",
            "CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            f"CREATE TRIGGER touch BEFORE INSERT ON {QUOTED} FOR EACH ROW EXECUTE FUNCTION public.touch()",
            "CREATE VIEW public.paid AS SELECT * FROM public.customers",
        )
        archived.pgbackrest("--type=full", "--start-fast", "backup")
        yield found


def inside(world: RestoreHarness, *statements: str, user: str = "clerk") -> list[object]:
    """Run statements in the database as its owner."""
    return world.sql("SET default_transaction_read_only = off", *statements, database=DATABASE, user=user)


def moment(world: RestoreHarness) -> str:
    """Return the time between two commits."""
    time = world.source.now()
    # Replay to a time ends before the next commit, so after whatever precedes this commit.
    inside(world, "CREATE TABLE IF NOT EXISTS public.commits ()", "INSERT INTO public.commits DEFAULT VALUES")
    return time


@pytest.mark.requirement("pattern/backups")
def test_dropped_table_comes_back_with_its_rows(world: RestoreHarness) -> None:
    time = moment(world)
    inside(world, f"DROP TABLE {QUOTED}")
    world.source.archive_all()
    items = [
        {"database": DATABASE, "schema": SCHEMA, "table": TABLE},
        {"database": DATABASE, "table": "parts"},
    ]
    outcome = world.complete(world.restore("before-drop", items, time))
    assert (outcome.owner, outcome.exists) == ("clerk", (False, True))
    assert world.roles() == []
    # Without rights on what belongs to nobody else.
    assert inside(world, 'SELECT count(*) FROM restored_before_drop."Order; Items $$"') == [(500,)]
    assert inside(world, "SELECT n FROM restored_before_drop.parts") == [(7,)]
    assert inside(world, "SELECT count(*) FROM public.parts") == [(1,)], "the copy is no partition of a present table"
    inside(world, 'ALTER TABLE restored_before_drop."Order; Items $$" SET SCHEMA "my ""own"""')
    insert = f"INSERT INTO {QUOTED} (customer, state, note) VALUES (1, 'paid', 'x') RETURNING id"
    assert inside(world, insert) == [(501,)], "with its sequence"


def test_wrong_update_is_undone_from_the_copy(world: RestoreHarness) -> None:
    time = moment(world)
    inside(world, "UPDATE public.parts SET n = 0")
    world.source.archive_all()
    restore = world.restore("b", [{"database": DATABASE, "table": "parts"}], time, into="Before Update")
    # A pod that was killed at its end: the next one replaces the copy.
    world.prepare(restore)
    assert world.job(restore).code == 0
    world.prepare(restore)
    assert world.complete(restore).exists == (True,)
    inside(world, 'UPDATE public.parts p SET n = b.n FROM "Before Update".parts b WHERE b.day = p.day')
    assert inside(world, "SELECT n FROM public.parts") == [(7,)]
    # Whatever is repeated after the end changes nothing.
    assert world.finish(restore).owner == "clerk"
    world.discard(restore)
    assert inside(world, 'SELECT n FROM "Before Update".parts') == [(7,)]


def test_dropped_database_comes_back_as_another_one(world: RestoreHarness) -> None:
    world.sql("CREATE DATABASE small OWNER clerk")
    world.sql("CREATE TABLE t AS SELECT generate_series(1, 9) n", database="small", user="clerk")
    world.sql("CREATE EXTENSION IF NOT EXISTS amcheck", database="small")
    time = moment(world)
    world.sql("DROP DATABASE small")
    world.source.archive_all()
    restore = world.restore("again", [{"database": "small"}], time)
    world.prepare(restore)
    done = world.job(restore)
    assert done.code == 0, done.logs
    assert done.result["restore"]["leftOut"] == ["amcheck"]
    assert world.finish(restore, done.result["restore"]["owner"]).owner == "clerk"
    copied = "small_restored_again"
    assert world.sql("SELECT count(*) FROM t", database=copied, user="clerk") == [(9,)]
    ((owner, public),) = world.sql(
        "SELECT pg_get_userbyid(datdba), has_database_privilege('public', oid, 'connect') FROM pg_database"
        f" WHERE datname = '{copied}'"
    )
    assert (owner, public) == ("clerk", False)
    assert world.roles() == []
    world.sql(f"DROP DATABASE {copied}")


def test_missing_objects_are_refused_with_those_that_exist(world: RestoreHarness) -> None:
    time = moment(world)
    world.source.archive_all()
    for item, reason, known in (
        ({"database": DATABASE, "table": "nothing"}, "TableNotFound", "public.customers"),
        ({"database": DATABASE, "table": "paid"}, "TableNotFound", "is not a table"),
        ({"database": "nothing"}, "DatabaseNotFound", "postgres"),
    ):
        restore = world.restore("missing", [item], time)
        world.prepare(restore)
        done = world.job(restore)
        assert (done.code, done.result["reason"]) == (3, reason), done.logs
        assert known in done.result["message"]
        world.discard(restore)
    assert world.roles() == []


def test_target_beyond_the_archive_is_refused(world: RestoreHarness) -> None:
    restore = world.restore("early", [{"database": DATABASE, "table": "parts"}], "2020-01-01T00:00:00Z")
    world.prepare(restore)
    done = world.job(restore)
    assert (done.code, done.result["reason"]) == (3, "NoUsableBackup"), done.logs
    world.discard(restore)


def test_existing_names_are_never_overwritten(world: RestoreHarness) -> None:
    time = moment(world)
    inside(world, "CREATE SCHEMA mine", "CREATE TABLE mine.t (n int)")
    item = {"database": DATABASE, "table": "parts"}
    taken = world.restore("taken", [item], time, into="mine")
    with pytest.raises(CopyNameTaken, match="schema mine"):
        world.prepare(taken)
    with pytest.raises(CopyNameTaken, match="database postgres"):
        world.prepare(world.restore("taken", [{"database": DATABASE}], time, into="postgres"))
    with pytest.raises(CopyDatabaseMissing, match="nothing"):
        world.prepare(world.restore("missing", [{"database": "nothing", "table": "t"}], time))
    assert world.roles() == []
    # Created by somebody else while the Job restored.
    late = world.restore("late", [item], time, into="late")
    world.prepare(late)
    inside(world, "CREATE SCHEMA late")
    done = world.job(late)
    assert (done.code, done.result["reason"]) == (3, "NameConflict"), done.logs
    world.discard(late)
    assert inside(world, "SELECT count(*) FROM pg_namespace WHERE nspname IN ('mine', 'late')") == [(2,)]


def test_functions_of_users_run_without_privileges(world: RestoreHarness) -> None:
    inside(
        world,
        "CREATE FUNCTION public.rise(t text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        " EXECUTE 'RESET SESSION AUTHORIZATION'; EXECUTE 'RESET ROLE'; EXECUTE 'ALTER ROLE clerk SUPERUSER';"
        " RETURN true; EXCEPTION WHEN insufficient_privilege THEN RETURN true; END $$",
        "CREATE TABLE public.trap (t text CHECK (public.rise(t)))",
        "INSERT INTO public.trap VALUES ('x')",
    )
    time = moment(world)
    world.source.archive_all()
    world.complete(world.restore("trap", [{"database": DATABASE, "table": "trap"}], time))
    assert world.sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'clerk'") == [(False,)]


def test_discard_removes_an_unfinished_copy(world: RestoreHarness) -> None:
    time = moment(world)
    world.source.archive_all()
    for item, only in (({"database": DATABASE, "table": "parts"}, True), ({"database": DATABASE}, False)):
        restore = world.restore("unfinished", [item], time)
        world.prepare(restore)
        done = world.job(restore)
        assert done.code == 0, done.logs
        world.discard(restore)
        world.discard(restore)
        if only:
            assert inside(world, "SELECT 1 FROM pg_namespace WHERE nspname = 'restored_unfinished'") == []
        else:
            assert world.sql("SELECT 1 FROM pg_database WHERE datname ~ 'unfinished'") == []
    assert world.roles() == []
