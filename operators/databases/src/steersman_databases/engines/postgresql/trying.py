"""Values of parameters, tried by a server that runs: some only the code can judge that reads them.

A server that is told to read a file with one that it does not take goes on with what it had. One that starts does
not: it ends. So values are tried before they are written, each in a statement of its own, whose end undoes it. What
no session may set cannot be tried so: of that the view ``pg_file_settings`` tells once it is written, as of all else.
That alone would do while somebody runs who can be asked; but the only server may restart between the writing and the
look, and would not come back.

Source: PostgreSQL 17 documentation, 9.28.1 "Configuration Settings Functions", 52.10 "pg_file_settings".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from ..cluster import Tried
from ..errors import Raced, SqlFailed
from ..server import Server
from .session import Session, logged_in

_SECONDS = 5.0
# A session looks them up in its own database, where they need not be; a server that starts does not.
_LOOKED_UP = ("default_table_access_method", "default_tablespace", "default_text_search_config")
# What is read by the same rules and may be set by a session, in place of what may not, or is looked up.
_LIKE = {"log_timezone": "timezone", "temp_tablespaces": "search_path"}
_TRIABLE = """
    SELECT pg_catalog.lower(name), context IN ('user', 'superuser') FROM pg_catalog.pg_settings
    WHERE pg_catalog.lower(name) = ANY (%s)
"""
_TRY = "SELECT pg_catalog.set_config(%s, %s, true) IS NULL"
# Of what takes a restart, each that waits for one stands there as not applied; in no file where it was taken out.
_UNREAD = """
    SELECT coalesce(pg_catalog.lower(file.name), ''), coalesce(file.setting, ''), file.error,
           pg_catalog.regexp_replace(file.sourcefile, '.*/', ''), file.sourceline
    FROM pg_catalog.pg_file_settings AS file
         LEFT JOIN pg_catalog.pg_settings AS known ON pg_catalog.lower(known.name) = pg_catalog.lower(file.name)
    WHERE file.error IS NOT NULL AND file.sourcefile IS NOT NULL AND known.context IS DISTINCT FROM 'postmaster'
"""


async def try_out(server: Server, values: Mapping[str, str]) -> Tried:
    """Which of the parameters ``values``, by names in lower case, a server does not take, or could not read.

    Args:
        server: one of a cluster's, with a superuser's login; it may be a standby.

    Raises:
        EngineError: it does not answer in 5 s, or does not let the superuser in.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        tried = {name: _LIKE.get(name, name) for name in values if _may_be_tried(name)}
        known = dict(await session.rows("looking at parameters", _TRIABLE, [*tried.values()]))
        refused: dict[str, str] = {}
        for name, like in tried.items():
            # Of an extension that is not loaded a server knows none.
            if known.get(like, "." in name):
                try:
                    await session.rows("trying a parameter", _TRY, like, values[name])
                except SqlFailed as failure:
                    refused[name] = re.sub(re.escape(f'"{like}"'), f'"{name}"', failure.message, flags=re.IGNORECASE)
        return Tried(refused, await _unread(session))


def _may_be_tried(name: str) -> bool:
    """Not what would end the session, nor what depends on it: those are judged without it."""
    return not _depends(name) and not name.endswith("_timeout") and name != "exit_on_error"


def _depends(name: str) -> bool:
    """Whether another session, with other values or in another database, may judge otherwise."""
    return name in _LOOKED_UP or name.endswith("_stats")


async def _unread(session: Session) -> Mapping[str, tuple[str, str]]:
    try:
        rows = await session.rows("looking at what the server reads as it starts", _UNREAD)
    except (SqlFailed, Raced):
        # It looks up here what a server that starts does not, and ends at that: default_text_search_config.
        return {}
    return {
        name: (value, f"{file}, line {line}: {f'{name} = {value}: ' if name else ''}{error}")
        for name, value, error, file, line in rows
        if not _depends(name)
    }
