"""Values that a real server only finds wrong by trying them: nothing that is left starts no server."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from database_support.servers.postgresql import RealPostgreSQLServer, initialise
from database_support.servers.process import START_SECONDS, DatabaseServerProcess, data_directory
from steersman_databases.engines.cluster_engine import Setting, SettingCatalog, SettingValidation
from steersman_databases.engines.postgresql.config.parameters import classify, conflicts
from steersman_databases.engines.postgresql.config.setting_validation import validate
from steersman_databases.engines.postgresql.config.settings_catalog import catalog
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification

LONG = "long_" * 20
WRONG: list[Mapping[str, str]] = [
    {"timezone": "Europe/Berln"},
    {"timezone": "interval -3:00"},
    {"log_timezone": "Europe/Berln"},
    {"log_destination": "eventlog"},
    {"log_destination": "stderr,"},
    {"timezone_abbreviations": "nope"},
    {"lc_messages": "xx_YY"},
    {"lc_monetary": "xx_YY"},
    {"lc_numeric": "xx_YY"},
    {"lc_time": "xx_YY"},
    {"search_path": "a b"},
    {"search_path": "a,"},
    {"search_path": "a\nb"},
    {"temp_tablespaces": "a b"},
    {"datestyle": "foo"},
    {"client_encoding": "nope"},
    {"backtrace_functions": "a b-"},
    {"default_table_access_method": ""},
    {"restrict_nonsystem_relation_kind": "tables"},
    {"max_stack_depth": "1GB"},
    {"log_statement_stats": "on", "log_parser_stats": "on"},
    {"log_executor_stats": "1", "log_statement_stats": "yes"},
    {"rum.fuzzy.limit": "1"},
    {"rum.limit$": "1"},
    {"rum.": "1"},
    {"role": "postgres"},
    {"session_authorization": "postgres"},
]
"""With none of these a server starts."""
RIGHT: list[Mapping[str, str]] = [
    {"timezone": "-3", "log_timezone": "UTC"},
    {"log_destination": ' "STDERR", jsonlog'},
    {"log_destination": ""},
    {"search_path": '"$user", "a b"', "temp_tablespaces": "nope"},
    {"default_tablespace": "nope"},
    {"default_text_search_config": "shop.words"},
    {"default_text_search_config": "a.b.c.d.e"},
    {"default_table_access_method": LONG},
    {"datestyle": "German", "client_encoding": "LATIN1"},
    {"client_encoding": "SQL_ASCII"},
    {"statement_timeout": "1", "idle_session_timeout": "1", "lock_timeout": "1"},
    {"exit_on_error": "on"},
    {"log_parser_stats": "on", "log_planner_stats": "on"},
    {"log_statement_stats": "on", "log_planner_stats": "off"},
    {"backtrace_functions": "a,b", "wal_consistency_checking": "all"},
    {"rum.fuzzy_limit": "none", "log_line_prefix": "%m \\ ' \t"},
    {"application_name": LONG, "dynamic_library_path": ""},
    {"pg_stat_statements.track": "all"},
    {"pg_stat_statements.max": "200"},
    {"jit_provider": "nope"},
]
"""With these one does, and takes them."""
REFUSED_THOUGH: list[Mapping[str, str]] = [
    {"pg_stat_statements.track": "some"},
    {"pg_stat_statements.max": "many"},
    {"pg_stat_statements.limit": "1"},
    {"session_preload_libraries": "nope"},
    {"local_preload_libraries": "nope"},
    {"wal_consistency_checking": "nope"},
]
"""With these one starts as well, and goes without them, or nobody may log in."""
TOGETHER = {
    "autovacuum_max_workers",
    "client_encoding",
    "log_executor_stats",
    "log_parser_stats",
    "log_planner_stats",
    "log_statement_stats",
    "max_stack_depth",
}
"""What depends on others, or on the machine."""


def as_superuser(postgresql: RealPostgreSQLServer) -> DatabaseServer:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    login = Login(administrator.username, administrator.password)
    return DatabaseServer("postgresql", postgresql.endpoint, login, verification)


async def refused(server: DatabaseServer, values: Mapping[str, str], known: SettingCatalog) -> bool:
    """Whether one of them is, before it is written."""
    verdicts = [classify(name, value, known).kind for name, value in values.items()]
    tried = await validate(server, values)
    assert tried.unreadable == {}
    return "Refused" in verdicts or bool(tried.rejected) or any(conflicts(values))


def write(file: Path, values: Mapping[str, str]) -> None:
    """As Patroni does it."""
    escaped = {name: value.replace("\\", "\\\\").replace("'", "''") for name, value in values.items()}
    file.write_text("".join(f"{name} = '{value}'\n" for name, value in escaped.items()))


@contextmanager
def as_before(file: Path) -> Generator[None]:
    """Puts a file's text back after the block."""
    text = file.read_text()
    try:
        yield
    finally:
        file.write_text(text)


def starts(directory: Path, command: list[str], values: Mapping[str, str]) -> bool:
    """Whether a server reads a file that Patroni would write."""
    write(directory / "data/postgresql.conf", values)
    options = [one for one in command if not one.startswith(("-cshared_preload", "-clog_statement"))]
    process = DatabaseServerProcess(directory, [*options, "-clisten_addresses=", "-C", "work_mem"])
    return process.ended(START_SECONDS) == 0


async def test_accepted_parameters_start_the_server(postgresql: RealPostgreSQLServer) -> None:
    server = as_superuser(postgresql)
    known = await catalog(server)
    newer = {"restrict_nonsystem_relation_kind"} - known.keys()
    with data_directory() as directory:
        command = initialise(directory, postgresql.programs)
        for values in WRONG:
            assert await refused(server, values, known), values
            assert newer & values.keys() or not starts(directory, command, values), values
        for values in RIGHT:
            assert not await refused(server, values, known), values
            assert starts(directory, command, values), values
        for values in REFUSED_THOUGH:
            assert await refused(server, values, known), values
            assert starts(directory, command, values), values


async def test_validation_of_all_changes_nothing(postgresql: RealPostgreSQLServer) -> None:
    server = as_superuser(postgresql)
    everything = {name: value for values in (*WRONG, *RIGHT) for name, value in values.items()}
    before = await postgresql.execute("SELECT name, setting FROM pg_settings ORDER BY name")
    tried = await validate(server, {**everything, "timezone": "Europe/Berln", "temp_tablespaces": "a b"})
    assert tried.rejected["timezone"] == 'invalid value for parameter "timezone": "Europe/Berln"'
    assert tried.rejected["temp_tablespaces"] == 'invalid value for parameter "temp_tablespaces": "a b"'
    assert await postgresql.execute("SELECT name, setting FROM pg_settings ORDER BY name") == before


def other(one: Setting) -> str | None:
    """Another value that a server takes; None where that is not known by what it tells."""
    match one.kind:
        case "bool":
            return "off" if one.value == "on" else "on"
        case "enum":
            return next((choice for choice in one.choices if choice != one.value), None)
        case "string":
            return one.value
        case _:
            return next((edge for edge in (one.maximum, one.minimum) if edge not in (None, one.value)), None)


async def test_file_errors_are_seen_before_restart(postgresql: RealPostgreSQLServer) -> None:
    server = as_superuser(postgresql)
    [(directory,)] = await postgresql.execute("SHOW data_directory")
    file = Path(directory, "postgresql.conf")
    known = await catalog(server)
    # What waits for a restart, or was not read again yet, is no fault of the file.
    edges = {
        name: value for name, one in known.items() if (value := other(one)) is not None and not one.session_settable
    }
    fine = {n: v for n, v in edges.items() if classify(n, v, known).kind != "Refused" and n not in TOGETHER}
    assert len(fine) > 150
    with as_before(file):
        write(file, {**fine, "default_tablespace": "nope", "default_table_access_method": "nope"})
        assert (await validate(server, {})).unreadable == {}
        write(file, {"timezone": "Europe/Berln", "syslog_facility": "local9", "work_mem": "8MB"})
        assert (await validate(server, {})).unreadable == {
            "timezone": (
                "Europe/Berln",
                "postgresql.conf, line 1: timezone = Europe/Berln: setting could not be applied",
            ),
            "syslog_facility": (
                "local9",
                "postgresql.conf, line 2: syslog_facility = local9: setting could not be applied",
            ),
        }
        write(file, {"work_mem": "8MB", "rum.fuzzy.limit": "1"})
        assert (await validate(server, {})).unreadable == {"": ("", "postgresql.conf, line 2: syntax error")}
        write(file, {"default_text_search_config": "a.b.c.d.e"})
        assert (await validate(server, {})).unreadable == {}, "it cannot be told, and ends nothing"


async def test_database_settings_do_not_hide_file_errors(postgresql: RealPostgreSQLServer) -> None:
    server = as_superuser(postgresql)
    [(directory,)] = await postgresql.execute("SHOW data_directory")
    file = Path(directory, "postgresql.conf")
    postgresql.administer("ALTER DATABASE postgres SET log_parser_stats = on")
    try:
        with as_before(file):
            write(file, {"log_statement_stats": "on"})
            assert (await validate(server, {"log_statement_stats": "on"})) == SettingValidation()
    finally:
        postgresql.administer("ALTER DATABASE postgres RESET log_parser_stats")


async def test_values_that_existing_slots_exclude_are_refused(postgresql: RealPostgreSQLServer) -> None:
    """A server does not start with them."""
    server = as_superuser(postgresql)
    wanted = {"wal_level": "replica", "max_replication_slots": "0"}
    assert (await validate(server, wanted)).rejected == {}
    await postgresql.execute("SELECT pg_create_physical_replication_slot('standalone')")
    try:
        rejected = (await validate(server, wanted)).rejected
        assert rejected.keys() == {"max_replication_slots"}
        assert "it has 1 replication slots: standalone. Drop slots first" in rejected["max_replication_slots"]
    finally:
        await postgresql.execute("SELECT pg_drop_replication_slot('standalone')")


async def test_missing_library_is_refused(postgresql: RealPostgreSQLServer) -> None:
    """A server does not start without it."""
    server, name = as_superuser(postgresql), "shared_preload_libraries"
    assert (await validate(server, {name: "auto_explain,pg_stat_statements"})).rejected == {}
    assert (await validate(server, {name: "auto_explain,nope"})).rejected == {
        name: "the image does not contain the library nope"
    }
