"""Whether the access rules of a server let in one of two users from wherever they let in the other.

Source: PostgreSQL 17 documentation, 20.1 "The pg_hba.conf File", and "pg_hba_file_rules" of its system views.
"""

from __future__ import annotations

from typing import LiteralString

from .session import Session

# With a + before it a group is named, and who is a member of one user is in all groups that this one is in. Names of
# databases that are regular expressions count as if they fitted.
_TOLD_APART: LiteralString = """
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


async def told_apart(session: Session, one: str, other: str, database: str) -> bool:
    """Whether a line that counts in this database is about one of them only. The session is a superuser's."""
    [(apart,)] = await session.rows("looking at access rules", _TOLD_APART, one, other, database)
    return apart
