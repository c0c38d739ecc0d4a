"""Contents of databases that another major version may refuse.

The server serves during the inspection.

Source: PostgreSQL's documentation of pg_upgrade, "Usage" and "Notes", and the checks of its `--check` from 15 on.
Tables WITH OIDS cannot exist any more, because 12 refused them. Problems that only `pg_upgrade --check` finds lead
to a rollback.
"""

from __future__ import annotations

import asyncio
from typing import LiteralString

from steersman_databases.engines.cluster_engine import UpgradeInventory
from steersman_databases.engines.server import DatabaseServer

from .database_settings import session_overrides
from .session import logged_in

_TIMEOUT_SECONDS = 30.0
_DATABASES: LiteralString = "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1"
_SIZE: LiteralString = "SELECT sum(pg_database_size(oid))::bigint FROM pg_database WHERE datconnlimit <> -2"
_SERVER_PROBLEMS_QUERY: LiteralString = """
SELECT format('prepared transaction %%L is open in database %%L: commit it or roll it back', gid, database)
FROM pg_prepared_xacts
UNION ALL SELECT format('database %%L is invalid, its deletion was cut: drop it again', datname)
FROM pg_database WHERE datconnlimit = -2
UNION ALL SELECT format('database %%L lets nobody in: allow connections, or drop it', datname)
FROM pg_database WHERE NOT datallowconn AND datname <> 'template0' AND datconnlimit <> -2
UNION ALL SELECT format('logical replication slot %%L would be lost: drop it, and make it anew afterwards', slot_name)
FROM pg_replication_slots WHERE slot_type = 'logical'
UNION ALL SELECT format('tablespace %%L is not upgraded: move what is in it, and drop it', spcname)
FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')
ORDER BY 1
"""
_DATABASE_PROBLEMS_QUERY: LiteralString = """
SELECT format('column %%I of %%I.%%I in database %%L is of type %%s, which cannot be upgraded: give it another',
    a.attname, n.nspname, c.relname, current_database(), t.typname)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
WHERE NOT a.attisdropped AND c.relkind IN ('r', 'm', 'i') AND t.typnamespace = 'pg_catalog'::regnamespace
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg\\_temp\\_%%'
    AND t.typname IN ('aclitem', 'regcollation', 'regconfig', 'regdictionary', 'regnamespace', 'regoper',
        'regoperator', 'regproc', 'regprocedure')
ORDER BY 1
"""
_EXTENSIONS: LiteralString = "SELECT extname FROM pg_extension ORDER BY 1"
_LOADED_LIBRARIES_QUERY: LiteralString = """
SELECT btrim(name, ' "') FROM unnest(string_to_array(current_setting('shared_preload_libraries'), ',')) AS name
"""
_COLUMN_OPTIONS: LiteralString = """
SELECT DISTINCT split_part(option, '=', 1) FROM pg_attribute, unnest(attoptions) AS option
WHERE attrelid >= 16384 ORDER BY 1
"""
_LIBRARIES: LiteralString = """
SELECT DISTINCT probin FROM pg_proc WHERE probin IS NOT NULL AND oid >= 16384 ORDER BY 1
"""


async def upgrade_inventory(server: DatabaseServer) -> UpgradeInventory:
    """Return the inventory of a primary's databases.

    `server.login` is a superuser's, because some databases let only superusers in.

    Raises:
        EngineError: it does not respond in 30 s, or refuses the login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        problems = [row[0] for row in await session.rows("inspecting the server", _SERVER_PROBLEMS_QUERY)]
        [(size,)] = await session.rows("measuring the databases", _SIZE)
        databases = [row[0] for row in await session.rows("searching for databases", _DATABASES)]
        session_settings = await session_overrides(session, databases)
        libraries: set[str] = {row[0] for row in await session.rows("inspecting libraries", _LOADED_LIBRARIES_QUERY)}
    extensions: set[str] = set()
    column_options: set[str] = set()
    for database in databases:
        async with logged_in(server, deadline, database, session_settings.get(database, {})) as session:
            await session.begin_use(deadline)
            problems += [row[0] for row in await session.rows("inspecting columns", _DATABASE_PROBLEMS_QUERY)]
            extensions |= {row[0] for row in await session.rows("inspecting extensions", _EXTENSIONS)}
            libraries |= {row[0] for row in await session.rows("inspecting libraries", _LIBRARIES)}
            column_options |= {row[0] for row in await session.rows("inspecting options", _COLUMN_OPTIONS)}
    return UpgradeInventory(
        problems=problems,
        extensions=sorted(extensions),
        libraries=sorted(libraries),
        size=int(size or 0),
        column_options=sorted(column_options),
    )
