"""Comparison of two users by the access rules of a server.

Source: PostgreSQL 17 documentation, 20.1 "The pg_hba.conf File", and "pg_hba_file_rules" of its system views.
"""

from __future__ import annotations

from typing import LiteralString

from .session import PostgreSQLSession

# A name with + is a group, and a member of a user is also a member of the user's groups. Regular expressions for
# databases count as a match.
_DISTINGUISHING_RULE_QUERY: LiteralString = """
    SELECT EXISTS (
        SELECT FROM (
            SELECT %s::text AS one, %s::text AS other, %s::text AS place,
                   pg_catalog.current_setting('server_version_num')::int >= 160000 AS patterns
        ) asked, pg_catalog.pg_hba_file_rules r
        WHERE r.type <> 'local' AND (
            NOT 'all' = ANY(r.user_name)
            AND EXISTS (SELECT FROM pg_catalog.unnest(r.user_name) u
                        WHERE u = one OR patterns AND u ~ '^/' AND one ~ pg_catalog.substr(u, 2))
             <> EXISTS (SELECT FROM pg_catalog.unnest(r.user_name) u
                        WHERE u = other OR patterns AND u ~ '^/' AND other ~ pg_catalog.substr(u, 2))
            AND EXISTS (SELECT FROM pg_catalog.unnest(r.database) d
                        WHERE d IN ('all', 'sameuser', 'samerole', 'samegroup', place) OR patterns AND d ~ '^/')
          OR 'sameuser' = ANY(r.database) AND place IN (one, other) AND NOT r.database && ARRAY['all', place]))
"""


async def is_distinguished(session: PostgreSQLSession, one: str, other: str, database: str) -> bool:
    """Return True if a rule for this database distinguishes the users.

    The session is a superuser's.
    """
    [(distinguished,)] = await session.rows(
        "inspecting access rules", _DISTINGUISHING_RULE_QUERY, one, other, database
    )
    return distinguished
