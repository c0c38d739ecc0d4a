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


_USE_INVOKER_RIGHTS_BLOCK = """
DECLARE
    owner pg_catalog.oid := (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = {});
    found pg_catalog.text;
BEGIN
    FOR found IN SELECT oid::pg_catalog.regclass FROM pg_catalog.pg_class c
                 WHERE relowner = owner AND relkind IN ('r', 'p', 'v') AND EXISTS (
                     SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN') LOOP
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the rules of %s would act with the rights of the new owner: drop them', found);
    END LOOP;
    FOR found IN SELECT oid::pg_catalog.regprocedure FROM pg_catalog.pg_proc
                 WHERE proowner = owner AND prosecdef LOOP
        EXECUTE pg_catalog.format('ALTER ROUTINE %s SECURITY INVOKER', found);
    END LOOP;
    FOR found IN SELECT oid::pg_catalog.regclass FROM pg_catalog.pg_class
                 WHERE relowner = owner AND relkind = 'v' LOOP
        IF pg_catalog.current_setting('server_version_num')::pg_catalog.int4 < 150000 THEN
            RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
                'the view %s would act with the rights of the new owner: drop it', found);
        END IF;
        EXECUTE pg_catalog.format('ALTER VIEW %s SET (security_invoker = true)', found);
    END LOOP;
END
"""


def use_invoker_rights(name: str) -> sql.Composed:
    """Give routines and views of a role the rights of their callers.

    With the rights of a new owner, code of the dropped user would gain rights. Rules always act with the rights of
    the owner, and views do before PostgreSQL 15: these are refused.
    """
    return compose("DO {}", sql.Literal(compose(_USE_INVOKER_RIGHTS_BLOCK, sql.Literal(name)).as_string()))


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
