"""Trial of parameter values on a running server.

Only the server's code can judge some values. On a reload a server ignores a file with an invalid value and keeps
the previous values. At its start it ends. So values are tried before they are written, each in a statement of its
own, whose end reverts it.

Parameters that a session may not set cannot be tried. For them, as for all others, the view `pg_file_settings`
reports errors after the file was written. This would suffice as long as a server runs. But the only server may
restart between the write and the inspection, and would not start.

Source: PostgreSQL 17 documentation, 9.28.1 "Configuration Settings Functions", 52.10 "pg_file_settings".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from steersman_databases.engines.cluster_engine import SettingValidation
from steersman_databases.engines.errors import ConcurrentChange, SqlFailed
from steersman_databases.engines.server import DatabaseServer

from ..sql.session import PostgreSQLSession, logged_in

_TIMEOUT_SECONDS = 5.0
# A session resolves these in its own database, where the object may not exist. A starting server does not.
_CATALOG_DEPENDENT = ("default_table_access_method", "default_tablespace", "default_text_search_config")
# Parameters with the same parser that a session may set, instead of those that it may not set or that need a lookup.
_EQUIVALENT = {"log_timezone": "timezone", "temp_tablespaces": "search_path"}
_VALIDATABLE_QUERY = """
    SELECT pg_catalog.lower(name), context IN ('user', 'superuser') FROM pg_catalog.pg_settings
    WHERE pg_catalog.lower(name) = ANY (%s)
"""
_LIBRARIES = "shared_preload_libraries"
_SLOTS_QUERY = """
    SELECT slot_name, slot_type = 'logical' FROM pg_catalog.pg_replication_slots WHERE NOT temporary ORDER BY 1
"""
# Libraries in another directory are not checked.
_MISSING_LIBRARIES_QUERY = """
    SELECT library FROM pg_catalog.unnest(%s::text[]) AS library, pg_catalog.pg_config AS build
    WHERE build.name = 'PKGLIBDIR' AND pg_catalog.current_setting('dynamic_library_path') = '$libdir'
        AND (pg_catalog.pg_stat_file(build.setting || '/' || library || '.so', true)).size IS NULL
"""
_SET_CONFIG_QUERY = "SELECT pg_catalog.set_config(%s, %s, true) IS NULL"
# A parameter that waits for a restart is listed as not applied. One that was removed is in no file.
_FILE_ERRORS_QUERY = """
    SELECT coalesce(pg_catalog.lower(file.name), ''), coalesce(file.setting, ''), file.error,
           pg_catalog.regexp_replace(file.sourcefile, '.*/', ''), file.sourceline
    FROM pg_catalog.pg_file_settings AS file
         LEFT JOIN pg_catalog.pg_settings AS known ON pg_catalog.lower(known.name) = pg_catalog.lower(file.name)
    WHERE file.error IS NOT NULL AND file.sourcefile IS NOT NULL AND known.context IS DISTINCT FROM 'postmaster'
"""


async def validate(server: DatabaseServer, values: Mapping[str, str]) -> SettingValidation:
    """Return the values that a server refuses or could not read.

    Args:
        server: a server of a cluster with a superuser's login. It may be a standby.
        values: value of each parameter by its name in lower case.

    Raises:
        EngineError: it does not respond in 5 s, or refuses the superuser's login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        validatable = {name: _EQUIVALENT.get(name, name) for name in values if _is_validatable(name)}
        known = dict(await session.rows("inspecting parameters", _VALIDATABLE_QUERY, [*validatable.values()]))
        rejected: dict[str, str] = {}
        for name, equivalent in validatable.items():
            # A server does not know the parameters of an extension that is not loaded.
            if known.get(equivalent, "." in name):
                try:
                    await session.rows("trying a parameter", _SET_CONFIG_QUERY, equivalent, values[name])
                except SqlFailed as failure:
                    rejected[name] = re.sub(
                        re.escape(f'"{equivalent}"'), f'"{name}"', failure.message, flags=re.IGNORECASE
                    )
        rejected |= await _missing_libraries(session, values)
        slots = dict(await session.rows("inspecting replication slots", _SLOTS_QUERY))
        rejected |= slot_conflicts(values, slots)
        return SettingValidation(rejected, await _file_errors(session))


async def _missing_libraries(session: PostgreSQLSession, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the declared libraries as rejected if the image lacks one."""
    names = values.get(_LIBRARIES, "").split(",")
    if names == [""]:
        return {}
    missing = [name for (name,) in await session.rows("inspecting libraries", _MISSING_LIBRARIES_QUERY, names)]
    return {_LIBRARIES: f"the image does not contain the library {', '.join(missing)}"} if missing else {}


def slot_conflicts(values: Mapping[str, str], slots: Mapping[str, bool]) -> Mapping[str, str]:
    """Return values that a start with these slots excludes.

    Args:
        slots: True for each logical slot, by name.

    Source: PostgreSQL 17, src/backend/replication/slot.c, RestoreSlotFromDisk.
    """
    conflicts: dict[str, str] = {}
    level, number = values.get("wal_level", "logical"), values.get("max_replication_slots", "").strip()
    logical = [name for name, is_logical in slots.items() if is_logical]
    if logical and level.strip().lower() != "logical":
        conflicts["wal_level"] = f"its logical replication slots {', '.join(logical)} need wal_level logical"
    if number.isdecimal() and int(number) < len(slots):
        conflicts["max_replication_slots"] = f"it has {len(slots)} replication slots: {', '.join(slots)}"
    return {
        name: f'a server could not start with parameter "{name}" = {values[name]}: {why}. Drop slots first'
        for name, why in conflicts.items()
    }


def _is_validatable(name: str) -> bool:
    """Return True if a trial does not affect the session.

    It may neither end the session nor depend on its state.
    """
    return not _is_session_dependent(name) and not name.endswith("_timeout") and name != "exit_on_error"


def _is_session_dependent(name: str) -> bool:
    """Return True if the result depends on the session.

    Another session may have other values or be in another database.
    """
    return name in _CATALOG_DEPENDENT or name.endswith("_stats")


async def _file_errors(session: PostgreSQLSession) -> Mapping[str, tuple[str, str]]:
    try:
        rows = await session.rows("inspecting the server's configuration files", _FILE_ERRORS_QUERY)
    except (SqlFailed, ConcurrentChange):
        # The view resolves default_text_search_config and fails, which a starting server does not.
        return {}
    return {
        name: (value, f"{file}, line {line}: {f'{name} = {value}: ' if name else ''}{error}")
        for name, value, error, file, line in rows
        if not _is_session_dependent(name)
    }
