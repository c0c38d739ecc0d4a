"""Sessions that block others, and holders of old data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steersman.meta import FrozenStruct
from steersman_databases.kubectl.insight.instance import decode

_STATEMENT_CHARACTERS = 200


class LockedSession(FrozenStruct):
    """A session that waits for a lock or blocks another session.

    `transaction_seconds` is the age of its transaction. `blocked_by` are the ids of other sessions.
    """

    id: int
    user: str | None = None
    database: str | None = None
    application: str | None = None
    state: str | None = None
    transaction_seconds: int | None = None
    statement: str | None = None
    blocked_by: tuple[int, ...] = ()


class Holder(FrozenStruct):
    """Something that retains old data. `amount` is in the unit of its list."""

    kind: str
    name: str
    amount: int
    detail: str = ""


class Diagnosis(FrozenStruct):
    """Blocking sessions, and holders of old data, the largest first.

    `horizon`: what keeps deleted rows; amounts are transactions in PostgreSQL, and seconds in MySQL. `logs`: what
    keeps WAL, in bytes, or what reads binary logs, in seconds.
    """

    sessions: tuple[LockedSession, ...] = ()
    horizon: tuple[Holder, ...] = ()
    logs: tuple[Holder, ...] = ()


POSTGRESQL_SQL = f"""
WITH every AS (
    SELECT pid, usename, datname, application_name, state, xact_start, query, backend_xid, backend_xmin, backend_type,
        pg_blocking_pids(pid) AS blockers
    FROM pg_stat_activity WHERE pid <> pg_backend_pid()
), involved AS (
    SELECT * FROM every
    WHERE cardinality(blockers) > 0 OR pid IN (SELECT unnest(blockers) FROM every)
), holders AS (
    SELECT 'session' AS kind, pid::text AS name, greatest(age(backend_xmin), age(backend_xid)) AS amount,
        concat_ws(' ', usename, datname, application_name, state) AS detail
    FROM every WHERE backend_type = 'client backend'
    UNION ALL SELECT 'replication slot', slot_name, greatest(age(xmin), age(catalog_xmin)),
        CASE WHEN active THEN 'active' ELSE 'inactive' END FROM pg_replication_slots
    UNION ALL SELECT 'prepared transaction', gid, age(transaction), concat_ws(' ', owner, database)
    FROM pg_prepared_xacts
    UNION ALL SELECT 'standby', application_name, age(backend_xmin), state FROM pg_stat_replication
), logs AS (
    SELECT 'replication slot' AS kind, slot_name AS name,
        CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END::bigint
            AS amount,
        concat_ws(' ', CASE WHEN active THEN 'active' ELSE 'inactive' END, wal_status) AS detail
    FROM pg_replication_slots WHERE restart_lsn IS NOT NULL
    UNION ALL SELECT 'archive', last_failed_wal, 0, 'archiving fails' FROM pg_stat_archiver
    WHERE last_failed_time > coalesce(last_archived_time, '-infinity')
)
SELECT json_build_object(
    'sessions', (SELECT coalesce(json_agg(json_build_object('id', pid, 'user', usename, 'database', datname,
        'application', application_name, 'state', state, 'statement', left(query, {_STATEMENT_CHARACTERS}),
        'transactionSeconds', extract(epoch FROM clock_timestamp() - xact_start)::int,
        'blockedBy', blockers) ORDER BY pid), '[]') FROM involved),
    'horizon', (SELECT coalesce(json_agg(h ORDER BY amount DESC), '[]')
        FROM (SELECT * FROM holders WHERE amount IS NOT NULL ORDER BY amount DESC LIMIT 10) h),
    'logs', (SELECT coalesce(json_agg(l ORDER BY amount DESC), '[]') FROM logs l))
"""  # noqa: S608
MYSQL_SQL = f"""
WITH waits AS (
    SELECT waiting_pid AS waiting, blocking_pid AS blocking FROM sys.innodb_lock_waits
    UNION SELECT waiting_pid, blocking_pid FROM sys.schema_table_lock_waits WHERE waiting_pid <> blocking_pid
), transactions AS (
    SELECT trx_mysql_thread_id AS id, TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS seconds
    FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> CONNECTION_ID()
)
SELECT JSON_OBJECT(
    'sessions', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('id', p.ID, 'user', p.USER, 'database', p.DB,
        'state', COALESCE(NULLIF(p.STATE, ''), LOWER(p.COMMAND)), 'statement', LEFT(p.INFO, {_STATEMENT_CHARACTERS}),
        'transactionSeconds', (SELECT MAX(seconds) FROM transactions t WHERE t.id = p.ID),
        'blockedBy', COALESCE((SELECT JSON_ARRAYAGG(blocking) FROM waits WHERE waiting = p.ID), JSON_ARRAY())))
        FROM performance_schema.processlist p
        WHERE p.ID IN (SELECT waiting FROM waits UNION SELECT blocking FROM waits)), JSON_ARRAY()),
    'horizon', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('kind', 'session', 'name', CAST(t.id AS CHAR),
        'amount', t.seconds, 'detail', CONCAT_WS(' ', p.USER, p.DB, LOWER(p.COMMAND))))
        FROM (SELECT * FROM transactions ORDER BY seconds DESC LIMIT 10) t
        JOIN performance_schema.processlist p ON p.ID = t.id), JSON_ARRAY()),
    'logs', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('kind', 'reader', 'name', CAST(ID AS CHAR), 'amount', TIME,
        'detail', CONCAT_WS(' ', USER, HOST)))
        FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'), JSON_ARRAY()))
"""  # noqa: S608


def parse(output: str) -> Diagnosis:
    """Return the diagnosis that a server printed.

    Raises:
        OperationRejected: the output is not a diagnosis.
    """
    found = decode(output, Diagnosis)
    largest = (tuple(sorted(each, key=lambda one: -one.amount)) for each in (found.horizon, found.logs))
    horizon, logs = largest
    return Diagnosis(sessions=found.sessions, horizon=horizon, logs=logs)


def blocking_tree(sessions: Sequence[LockedSession]) -> Iterator[tuple[int, LockedSession]]:
    """Yield each session once with its depth, blocking sessions first.

    Those that block others and wait for none have depth 0.
    In a cycle the session with the lowest id comes first.
    """
    waiting = sorted(sessions, key=lambda one: one.id)
    known = {one.id for one in waiting}
    seen: set[int] = set()

    def below(one: LockedSession, depth: int) -> Iterator[tuple[int, LockedSession]]:
        if one.id in seen:
            return
        seen.add(one.id)
        yield depth, one
        for other in waiting:
            if one.id in other.blocked_by:
                yield from below(other, depth + 1)

    # A blocker can be unknown: a prepared transaction has no session, and a session may have ended meanwhile.
    roots = [one for one in waiting if not known.intersection(one.blocked_by)]
    for one in (*roots, *waiting):
        yield from below(one, 0)


def lines(found: Diagnosis, *, horizon_unit: str, log_unit: str) -> Iterator[str]:
    """Yield the diagnosis as text."""
    yield "Locks" if found.sessions else "Locks: no session waits for another"
    for depth, one in blocking_tree(found.sessions):
        yield f"{'  ' * (depth + 1)}{_describe(one)}"
    for title, unit, holders in (
        ("Deleted rows are kept by", horizon_unit, found.horizon),
        ("Logs are kept by", log_unit, found.logs),
    ):
        yield title if holders else f"{title}: nothing"
        for one in holders:
            detail = f"  ({one.detail})" if one.detail else ""
            yield f"  {one.kind} {one.name}: {one.amount} {unit}{detail}"


def _describe(one: LockedSession) -> str:
    place = "/".join(filter(None, (one.user, one.database, one.application)))
    age = "" if one.transaction_seconds is None else f", transaction of {one.transaction_seconds} s"
    waits = f", waits for {', '.join(map(str, one.blocked_by))}" if one.blocked_by else ""
    statement = f": {' '.join(one.statement.split())}" if one.statement else ""
    return f"session {one.id} ({place}) {one.state or 'unknown'}{age}{waits}{statement}"
