"""Queries of `top`. Each prints one JSON document on one line.

Sources: PostgreSQL 17 documentation, "pg_stat_statements"; MySQL 9.7 Reference Manual, "Statement Summary Tables".
"""

from __future__ import annotations

from collections.abc import Iterable

from steersman.meta import FrozenStruct
from steersman_databases.kubectl.insight.load import STATEMENT_LIMIT

_TEXT_CHARACTERS = 1000
_RUNNING_LIMIT = 20


class StatementSource(FrozenStruct):
    """Availability of pg_stat_statements.

    `loaded`: the library is loaded. `schema`: quoted schema of the extension in the database `postgres`.
    """

    loaded: bool = False
    schema: str | None = None


# Only in the database postgres, in which users own no schema that they could rename, and no view.
POSTGRESQL_SOURCE_SQL = """
SELECT jsonb_build_object(
    'loaded', EXISTS (SELECT FROM pg_settings WHERE name = 'pg_stat_statements.max'),
    'schema', (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'pg_stat_statements'))
"""


def postgresql_sample(schema: str | None) -> str:
    """Return the query of a `LoadSample`.

    Args:
        schema: quoted schema of pg_stat_statements. None leaves statements out.
    """
    # A text is neither read from its file nor sent before the statement is known to be among the first.
    statements = f"""
        SELECT jsonb_agg(jsonb_build_array(s.queryid::text, coalesce(u.rolname, s.userid::text),
            coalesce(d.datname, s.dbid::text), jsonb_build_array(s.calls, s.seconds, s.rows, s.hit, s.read, s.temp)))
        FROM (SELECT queryid, userid, dbid, sum(calls) AS calls, sum(total_exec_time) / 1000 AS seconds,
                sum(rows) AS rows, sum(shared_blks_hit) AS hit, sum(shared_blks_read) AS read,
                sum(temp_blks_read + temp_blks_written) AS temp
            FROM {schema}.pg_stat_statements(false) WHERE queryid IS NOT NULL
            GROUP BY queryid, userid, dbid ORDER BY 5 DESC LIMIT {STATEMENT_LIMIT}) s
        LEFT JOIN pg_roles u ON u.oid = s.userid LEFT JOIN pg_database d ON d.oid = s.dbid
    """  # noqa: S608
    found = "NULL" if schema is None else f"coalesce(({statements}), '[]')"
    return f"""
        WITH clients AS MATERIALIZED (
            SELECT pid, coalesce(state, 'unknown') AS state, wait_event_type || ': ' || wait_event AS wait, usename,
                datname, query, extract(epoch FROM clock_timestamp() - query_start) AS seconds
            FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
        )
        SELECT jsonb_build_object(
            'at', extract(epoch FROM clock_timestamp()),
            'names', '["calls", "seconds", "rows", "blocksHit", "blocksRead", "tempBlocks"]'::jsonb,
            'sessions', (SELECT coalesce(jsonb_agg(jsonb_build_object('count', count, 'state', state, 'wait', wait)),
                '[]') FROM (SELECT count(*), state, wait FROM clients GROUP BY state, wait) groups),
            'running', (SELECT coalesce(jsonb_agg(jsonb_build_object('session', pid, 'seconds', seconds, 'user',
                usename, 'database', datname, 'wait', wait, 'statement', left(query, {_TEXT_CHARACTERS}))), '[]')
                FROM (SELECT * FROM clients WHERE state = 'active' ORDER BY seconds DESC LIMIT {_RUNNING_LIMIT}) r),
            'statements', {found})
    """  # noqa: S608


def postgresql_texts(schema: str, ids: Iterable[str]) -> str:
    """Return the query of texts by query id."""
    return f"""
        SELECT coalesce(jsonb_object_agg(queryid::text, left(query, {_TEXT_CHARACTERS})), '{{}}')
        FROM {schema}.pg_stat_statements(true) WHERE queryid IN ({", ".join(str(int(one)) for one in ids)})
    """  # noqa: S608


MYSQL_SAMPLE_SQL = f"""
WITH clients AS (
    SELECT p.ID AS id, p.USER AS user, p.DB AS db, LOWER(p.COMMAND) AS state, p.TIME AS seconds, p.INFO AS info,
        CASE WHEN t.trx_state = 'LOCK WAIT' THEN 'row lock' ELSE NULLIF(p.STATE, '') END AS wait
    FROM performance_schema.processlist p LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID
    WHERE p.ID <> CONNECTION_ID() AND p.COMMAND NOT IN ('Daemon', 'Connect')
        AND p.USER NOT IN ('system user', 'event_scheduler')
)
SELECT JSON_OBJECT(
    'at', UNIX_TIMESTAMP(SYSDATE(6)),
    'names', JSON_ARRAY('calls', 'seconds', 'rows', 'rowsExamined', 'tempTables'),
    'sessions', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('count', number, 'state', state, 'wait', wait))
        FROM (SELECT COUNT(*) AS number, state, wait FROM clients GROUP BY state, wait) g), JSON_ARRAY()),
    'running', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('session', id, 'seconds', seconds, 'user', user,
        'database', db, 'wait', wait, 'statement', LEFT(info, {_TEXT_CHARACTERS})))
        FROM (SELECT * FROM clients WHERE info IS NOT NULL ORDER BY seconds DESC LIMIT {_RUNNING_LIMIT}) r),
        JSON_ARRAY()),
    'statements', IF(@@performance_schema, COALESCE((SELECT JSON_ARRAYAGG(JSON_ARRAY(DIGEST, '',
        COALESCE(SCHEMA_NAME, ''), JSON_ARRAY(COUNT_STAR, SUM_TIMER_WAIT / 1e12, SUM_ROWS_SENT + SUM_ROWS_AFFECTED,
        SUM_ROWS_EXAMINED, SUM_CREATED_TMP_DISK_TABLES)))
        FROM (SELECT * FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IS NOT NULL
            ORDER BY SUM_TIMER_WAIT DESC LIMIT {STATEMENT_LIMIT}) s), JSON_ARRAY()), NULL))
"""  # noqa: S608


def mysql_texts(ids: Iterable[str]) -> str:
    """Return the query of texts by digest."""
    digests = ", ".join(f"'{int(one, 16):064x}'" for one in ids)
    return f"""
        SELECT COALESCE(JSON_OBJECTAGG(DIGEST, LEFT(DIGEST_TEXT, {_TEXT_CHARACTERS})), JSON_OBJECT())
        FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IN ({digests})
    """  # noqa: S608
