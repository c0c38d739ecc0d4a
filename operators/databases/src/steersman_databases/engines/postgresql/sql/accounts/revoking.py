"""Revoking all privileges that others granted to a role in a database.

DROP OWNED revokes the grants of owners, because a superuser's REVOKE counts as the owner's. Grants that others
made with a grant option must be revoked by these grantors. They prevent the role from being dropped. Source:
`RemoveRoleFromObjectACL` in src/backend/catalog/aclchk.c.
"""

from __future__ import annotations

from psycopg import sql

_GRANTED_PRIVILEGES_QUERY = """
    SELECT pg_catalog.format('REVOKE %s%s ON %s FROM %I CASCADE', acl.privilege_type, held.of, held.what, r.rolname)
               AS statement,
           g.rolname AS grantor,
           ARRAY(SELECT n.nspname FROM pg_catalog.pg_namespace n
                 WHERE n.oid = ANY(held.places)
                   AND NOT pg_catalog.has_schema_privilege(g.oid, n.oid, 'USAGE')) AS closed
    FROM pg_catalog.pg_roles r CROSS JOIN (
        SELECT pg_catalog.format('%s %I.%I', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                                 n.nspname, c.relname) AS what, '' AS of, c.relacl AS list, ARRAY[n.oid] AS places
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      UNION ALL
        SELECT pg_catalog.format('TABLE %I.%I', n.nspname, c.relname), pg_catalog.format(' (%I)', a.attname),
               a.attacl, ARRAY[n.oid]
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE NOT a.attisdropped
      UNION ALL
        SELECT pg_catalog.format(
                   'ROUTINE %I.%I(%s)', n.nspname, p.proname,
                   (SELECT pg_catalog.string_agg('IN ' || pg_catalog.format_type(type, NULL), ', ' ORDER BY number)
                    FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS argument(type, number))),
               '', p.proacl,
               n.oid || ARRAY(SELECT t.typnamespace FROM pg_catalog.pg_type t WHERE t.oid = ANY(p.proargtypes))
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proacl IS NOT NULL
      UNION ALL
        SELECT pg_catalog.format('TYPE %I.%I', n.nspname, t.typname), '', t.typacl, ARRAY[n.oid]
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
      UNION ALL
        SELECT pg_catalog.format('SCHEMA %I', nspname), '', nspacl, NULL FROM pg_catalog.pg_namespace
      UNION ALL
        SELECT pg_catalog.format('LANGUAGE %I', lanname), '', lanacl, NULL FROM pg_catalog.pg_language
      UNION ALL
        SELECT pg_catalog.format('FOREIGN DATA WRAPPER %I', fdwname), '', fdwacl, NULL
        FROM pg_catalog.pg_foreign_data_wrapper
      UNION ALL
        SELECT pg_catalog.format('FOREIGN SERVER %I', srvname), '', srvacl, NULL FROM pg_catalog.pg_foreign_server
      UNION ALL
        SELECT pg_catalog.format('LARGE OBJECT %s', oid), '', lomacl, NULL FROM pg_catalog.pg_largeobject_metadata
      UNION ALL
        SELECT pg_catalog.format('DATABASE %I', datname), '', datacl, NULL FROM pg_catalog.pg_database
      UNION ALL
        SELECT pg_catalog.format('TABLESPACE %I', spcname), '', spcacl, NULL FROM pg_catalog.pg_tablespace
      UNION ALL
        SELECT pg_catalog.format('PARAMETER %s', pg_catalog.array_to_string(
                   ARRAY(SELECT pg_catalog.quote_ident(part)
                         FROM pg_catalog.unnest(pg_catalog.string_to_array(parname, '.')) WITH ORDINALITY
                              AS parts(part, number) ORDER BY number), '.')),
               '', paracl, NULL
        FROM pg_catalog.pg_parameter_acl
    ) held
    CROSS JOIN LATERAL pg_catalog.aclexplode(held.list) acl JOIN pg_catalog.pg_roles g ON g.oid = acl.grantor
    WHERE r.rolname = {} AND acl.grantee = r.oid AND g.oid <> r.oid
      -- Whoever stays is named by the server when the role is dropped. Version 15 does not know of SET.
      AND pg_catalog.pg_has_role(session_user, g.oid,
          CASE WHEN pg_catalog.current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)
    ORDER BY acl.is_grantable, 1, 2
"""
"""REVOKE statements with grantors, and schemas that these may not use.

Privileges with grant option come last: with them the role may have made grants that came back to it.
"""

_REVOKE_BLOCK = f"""
DECLARE
    given record;
    place name;
BEGIN
    FOR attempt IN 1 .. 4 LOOP
        FOR given IN {_GRANTED_PRIVILEGES_QUERY} LOOP
            IF attempt = 4 THEN
                RAISE dependent_objects_still_exist USING MESSAGE = pg_catalog.format(
                    'the grantor %1$s cannot revoke its grant: %2$s', given.grantor, given.statement);
            END IF;
            FOREACH place IN ARRAY given.closed LOOP
                EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', place, given.grantor);
            END LOOP;
            EXECUTE pg_catalog.format('SET LOCAL ROLE %I', given.grantor);
            EXECUTE given.statement;
            SET LOCAL ROLE NONE;
            FOREACH place IN ARRAY given.closed LOOP
                EXECUTE pg_catalog.format('REVOKE USAGE ON SCHEMA %I FROM %I', place, given.grantor);
            END LOOP;
        END LOOP;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END
"""


def revoke_all(role: str) -> sql.Composed:
    """Revoke all remaining privileges in the connected database and on shared objects.

    This runs after DROP OWNED. Each grant is revoked as its grantor, with CASCADE for roles to which the role passed
    it on. The grantors keep their own privileges. A grantor without USAGE on a schema receives it temporarily.
    """
    body = sql.SQL(_REVOKE_BLOCK).format(sql.Literal(role))  # pyright: ignore[reportArgumentType]
    return sql.SQL("DO {}").format(sql.Literal(body.as_string()))
