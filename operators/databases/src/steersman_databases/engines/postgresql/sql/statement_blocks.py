"""PL/pgSQL blocks and session termination that several statements share."""

from __future__ import annotations

from psycopg import sql

_MOVE_EXTENSION_BLOCK = """
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_extension e
               JOIN pg_catalog.pg_depend m ON m.refobjid = e.oid AND m.deptype = 'e'
                AND m.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
               JOIN pg_catalog.pg_shdepend o ON o.classid = m.classid AND o.objid = m.objid AND o.deptype = 'o'
               JOIN pg_catalog.pg_database d ON d.oid = o.dbid AND d.datname = pg_catalog.current_database()
               JOIN pg_catalog.pg_roles r ON r.oid = o.refobjid AND NOT r.rolsuper
               WHERE e.extname = {}) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a user has added objects to the extension: '
            'remove them by ALTER EXTENSION ... DROP';
    END IF;
END
"""


def compose(text: str, *parts: sql.Composable) -> sql.Composed:
    return sql.SQL(text).format(*parts)  # pyright: ignore[reportArgumentType]


def move_extension(extension: str) -> sql.Composed:
    """Move an extension and verify the owners of its members.

    A superuser moves the members even to where their owner could not. The check runs afterwards in the same
    transaction, so that it sees members that were added meanwhile, or else the extension has not moved.
    """
    return compose("DO {}", sql.Literal(compose(_MOVE_EXTENSION_BLOCK, sql.Literal(extension)).as_string()))


_DROP_OWNED_BLOCK = """
BEGIN
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        LOCK TABLE pg_catalog.pg_shdepend IN SHARE MODE;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_roles r ON r.oid = l.objid AND r.rolname = {}
               WHERE l.locktype = 'object' AND l.classid = 'pg_catalog.pg_authid'::pg_catalog.regclass
                 AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()) THEN
        RAISE serialization_failure USING MESSAGE = 'an object is being created for it';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_shdepend u
               JOIN pg_catalog.pg_roles r ON r.oid = u.refobjid AND r.rolname = {}
               JOIN pg_catalog.pg_database d ON d.oid = u.dbid AND d.datname = pg_catalog.current_database()
               WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
                 AND u.deptype = 'o' AND u.classid NOT IN ('pg_catalog.pg_default_acl'::pg_catalog.regclass,
                                                           'pg_catalog.pg_user_mapping'::pg_catalog.regclass)) THEN
        RAISE serialization_failure USING MESSAGE = 'it has become the owner of an object there';
    END IF;
END
"""


def drop_owned(name: str) -> sql.Composed:
    """Drop the privileges of a role after a check for owned objects.

    DROP OWNED also drops owned objects. A role that created some since the inspection, or since REASSIGN, must be
    inspected again. Default privileges and user mappings of the role have no new owner and may be dropped.

    Other members of the role may still be active. Each new object of a role adds an entry in `pg_shdepend` and locks
    the role until the commit. So no creation can start or be pending. Only a superuser can prevent new ones.
    """
    return compose("DO {}", sql.Literal(compose(_DROP_OWNED_BLOCK, sql.Literal(name), sql.Literal(name)).as_string()))


def terminate_sessions(name: str) -> tuple[sql.Composed, ...]:
    """Terminate the sessions of a role and wait for their end.

    This runs as the role itself. A session that is committing can complete.
    """
    ended = "SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity WHERE usename = {}"
    return (
        compose("SET LOCAL ROLE {}", sql.Identifier(name)),
        compose(ended, sql.Literal(name)),
        compose("RESET ROLE"),
    )


TERMINATE_SESSIONS = """
    SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity
    WHERE datname = {} AND pg_catalog.pg_has_role(usesysid, 'USAGE')
"""
