"""What the owner of a database has set for all who come to it, and how the operator comes all the same.

ALTER DATABASE … SET takes every parameter that a session may set for itself: libraries that are not there, a
millisecond for a transaction, plans that take minutes. Whatever it is, the operator asks in its startup packet, which
outranks it, for the value that the server has. Source: PostgreSQL 17 documentation, 19.1.3, and `process_settings` in
src/backend/utils/init/postinit.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .session import Session

_SET = """
    SELECT d.datname, s.name, coalesce(s.reset_val, '')
    FROM pg_catalog.pg_db_role_setting o JOIN pg_catalog.pg_database d ON d.oid = o.setdatabase
    CROSS JOIN LATERAL pg_catalog.unnest(o.setconfig) AS said
    JOIN pg_catalog.pg_settings s ON pg_catalog.lower(s.name) = pg_catalog.lower(pg_catalog.split_part(said, '=', 1))
    WHERE d.datname = ANY(%s) AND o.setrole = 0 AND s.context = 'user'
      AND s.name NOT IN ('default_tablespace', 'default_table_access_method', 'default_toast_compression',
                         'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
    ORDER BY d.datname, s.name
"""
"""Where tables are made is a database's own matter: extensions have some, too. What only superusers set is theirs.

The last three are of the transaction in which one logs in, and some of their values end that."""


async def overridden(session: Session, databases: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """What is set for some databases, by database and name, each with the value that this session began with."""
    found: dict[str, dict[str, str]] = {}
    for database, name, value in await session.rows(
        "looking at the databases' settings", _SET, sorted(set(databases))
    ):
        found.setdefault(database, {})[name] = value
    return found
