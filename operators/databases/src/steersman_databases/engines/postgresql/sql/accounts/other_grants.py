"""Privileges of rotation roles that no `DatabaseUser` can declare.

Examples are privileges on types and languages. All grants belong to the user and not to its rotation role. Other
grants, on any object, prevent the rotation role from being dropped.
"""

from __future__ import annotations

from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession
from steersman_databases.engines.sql.inspection import UngrantablePrivilege

_OTHER_GRANTS_QUERY = """
    SELECT r.rolname,
           pg_catalog.concat_ws(' in database ', pg_catalog.replace(named.type, ' ACL', '') || ' ' || named.identity,
                                d.datname),
           acl.privilege_type, pg_catalog.pg_get_userbyid(acl.grantor)
    FROM pg_catalog.pg_roles r
    JOIN pg_catalog.pg_shdepend u ON u.refobjid = r.oid AND u.deptype = 'a'
     AND u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
    LEFT JOIN pg_catalog.pg_database d ON d.oid = u.dbid
    JOIN (
        SELECT tableoid, oid, typacl AS list FROM pg_catalog.pg_type
      UNION ALL
        SELECT tableoid, oid, lanacl FROM pg_catalog.pg_language
      UNION ALL
        SELECT tableoid, oid, fdwacl FROM pg_catalog.pg_foreign_data_wrapper
      UNION ALL
        SELECT tableoid, oid, srvacl FROM pg_catalog.pg_foreign_server
      UNION ALL
        SELECT 'pg_catalog.pg_largeobject'::pg_catalog.regclass::pg_catalog.oid, oid, lomacl
        FROM pg_catalog.pg_largeobject_metadata
      UNION ALL
        SELECT tableoid, oid, spcacl FROM pg_catalog.pg_tablespace
      UNION ALL
        SELECT tableoid, oid, paracl FROM pg_catalog.pg_parameter_acl
    ) held ON held.tableoid = u.classid AND held.oid = u.objid
    CROSS JOIN LATERAL pg_catalog.aclexplode(held.list) acl
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(u.classid, u.objid, 0) named
    WHERE r.rolname = ANY(%s) AND acl.grantee = r.oid AND acl.grantor <> r.oid
      AND (d.datname = pg_catalog.current_database() OR u.dbid = 0 AND %s)
"""
"""Grants of roles, found by the index on dependencies.

A scan of all objects would be slow, because there may be millions of large objects.
"""


async def other_grants(
    session: PostgreSQLSession, names: list[str], with_shared: bool
) -> frozenset[UngrantablePrivilege]:
    """Return such privileges of some roles in the connected database.

    Args:
        with_shared: include objects outside of databases.
    """
    rows = await session.rows("inspecting grants of second logins", _OTHER_GRANTS_QUERY, names, with_shared)
    return frozenset(UngrantablePrivilege(*row) for row in rows)
