"""Settings of a database, and overrides for the operator's sessions.

With ALTER DATABASE … SET an owner may set each parameter that a session may set: missing libraries, a millisecond
for a transaction, plans that take minutes. The operator requests the server's values in its startup packet, which
overrides them. Source: PostgreSQL 17 documentation, 19.1.3, and `process_settings` in
src/backend/utils/init/postinit.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .session import PostgreSQLSession

_DATABASE_SETTINGS_QUERY = """
    SELECT d.datname, s.name, coalesce(s.reset_val, '')
    FROM pg_catalog.pg_db_role_setting o JOIN pg_catalog.pg_database d ON d.oid = o.setdatabase
    CROSS JOIN LATERAL pg_catalog.unnest(o.setconfig) AS said
    JOIN pg_catalog.pg_settings s ON pg_catalog.lower(s.name) = pg_catalog.lower(pg_catalog.split_part(said, '=', 1))
    WHERE d.datname = ANY(%s) AND o.setrole = 0 AND s.context = 'user'
      AND s.name NOT IN ('default_tablespace', 'default_table_access_method', 'default_toast_compression',
                         'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
    ORDER BY d.datname, s.name
"""
"""Settings of databases that need an override.

The place of new tables is the database's own choice, and extensions create tables, too. Parameters that only
superusers set belong to them. The last three parameters concern the transaction of the login, and some of their
values abort it.
"""


async def session_overrides(session: PostgreSQLSession, databases: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Return settings of some databases, by database and name.

    The values are those with which this session started.
    """
    found: dict[str, dict[str, str]] = {}
    for database, name, value in await session.rows(
        "inspecting the databases' settings", _DATABASE_SETTINGS_QUERY, sorted(set(databases))
    ):
        found.setdefault(database, {})[name] = value
    return found
