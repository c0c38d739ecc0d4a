"""What the second login of a user was granted that no grant of a `DatabaseUser` names: on types, languages and more.

All that may be granted to it is the user's, whose grants those are. What it has nevertheless keeps it from being
dropped, whatever it is on.
"""

from __future__ import annotations

from ..survey import OtherPrivilege
from .session import Session

_UNNAMED = """
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
"""Asked by what a role has, which an index knows: of large objects there may be millions."""


async def held(session: Session, names: list[str], common: bool) -> frozenset[OtherPrivilege]:
    """What some were granted so in the connected database; with ``common``, also on what is in none."""
    rows = await session.rows("looking at grants of second logins", _UNNAMED, names, common)
    return frozenset(OtherPrivilege(*row) for row in rows)
