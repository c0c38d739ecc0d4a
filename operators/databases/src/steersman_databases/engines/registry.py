"""SQL engines by name."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import UnknownEngine
from .mysql.sql.engine import MySQLSqlEngine
from .postgresql.sql.engine import PostgreSQLSqlEngine
from .sql.sql_engine import SqlEngine

SQL_ENGINES: Mapping[str, PostgreSQLSqlEngine | MySQLSqlEngine] = {
    engine.name: engine for engine in (PostgreSQLSqlEngine(), MySQLSqlEngine())
}


def sql_engine_named(name: str) -> SqlEngine:
    """Return the engine of this name.

    Raises `UnknownEngine`, which lists the known names.
    """
    try:
        return SQL_ENGINES[name]
    except KeyError:
        raise UnknownEngine(name, SQL_ENGINES) from None
