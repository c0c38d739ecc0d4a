"""Accounts and roles of a server, from its system tables.

The server is MySQL or MariaDB. One query reads many accounts. Roles of MySQL are accounts that others were
granted. Roles of MariaDB are a separate kind without a host.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from steersman_databases.engines.sql.desired import AccountLimits
from steersman_databases.engines.sql.grant_planner import GRANT_OPTION
from steersman_databases.engines.sql.inspection import RoleMembership, UserState

from ..planning.grants import HARMLESS, REPLICATION
from ..planning.identifiers import RESERVED_DATABASES
from .session import ANY_HOST, MySQLSession, quoted_account

AccountKey = tuple[str, str]
"""Name and host."""

ROLE_HOST = ""
"""Replaces the host of roles of MariaDB."""

TABLES = ("db", "tables_priv", "columns_priv", "procs_priv")
"""Tables with privileges on databases and on objects in them."""

# Source: MariaDB, sql/privilege.h. The tables of information_schema do not cover these privileges of roles.
_BITS = (
    *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "RELOAD", "SHUTDOWN", "PROCESS", "FILE"),
    *(GRANT_OPTION, "REFERENCES", "INDEX", "ALTER", "SHOW DATABASES", "SUPER", "CREATE TEMPORARY TABLES"),
    *("LOCK TABLES", "EXECUTE", "REPLICATION SLAVE", "REPLICATION CLIENT", "CREATE VIEW", "SHOW VIEW"),
    *("CREATE ROUTINE", "ALTER ROUTINE", "CREATE USER", "EVENT", "TRIGGER", "CREATE TABLESPACE", "DELETE HISTORY"),
    *("SET USER", "FEDERATED ADMIN", "CONNECTION ADMIN", "READ_ONLY ADMIN", "REPLICATION SLAVE ADMIN"),
    *("REPLICATION MASTER ADMIN", "BINLOG ADMIN", "BINLOG REPLAY", "SLAVE MONITOR", "SHOW CREATE ROUTINE"),
)


@dataclass(slots=True)
class AccountRecord:
    """Account or role as the server reports it.

    Attributes:
        global_privileges: its own privileges on the whole server.
        grantable: dynamic privileges with grant option. All other ones share one grant option.
        has_reserved_grants: it has privileges on the server's own databases.
        acts_as: accounts that it may impersonate with PROXY.
        restricted: privileges on the whole server, but not on the server's own tables (MySQL's partial_revokes).
    """

    key: AccountKey
    state: UserState
    default_roles: frozenset[str] = frozenset()
    global_privileges: set[str] = field(default_factory=set[str])
    grantable: set[str] = field(default_factory=set[str])
    has_reserved_grants: bool = False
    acts_as: set[str] = field(default_factory=set[str])
    restricted: frozenset[str] = frozenset()

    @property
    def grantee(self) -> str:
        """Return the grantee in the notation of `information_schema`.

        It is in quotes, and quotes inside are not escaped.
        """
        return f"'{self.key[0]}'@'{self.key[1]}'"


@dataclass(frozen=True, slots=True)
class RoleEdge:
    """Direct membership in a role."""

    member: AccountKey
    role: AccountKey
    admin: bool


@dataclass(frozen=True, slots=True)
class AccountCatalog:
    """All accounts of some names, and the roles that they can reach.

    `effective_roles` are the administrator and the roles by which it acts: the active ones, and those that these
    have.
    """

    accounts: Mapping[AccountKey, AccountRecord]
    edges: Mapping[AccountKey, tuple[RoleEdge, ...]]
    effective_roles: frozenset[AccountKey]

    def assumable(self, marks: Mapping[tuple[str, str], str]) -> frozenset[AccountKey]:
        """Return the administrator and its roles.

        Roles that the operator created are left out. On MariaDB their creator is a member.
        """
        edges = {key: [one for one in each if ("user", one.role[0]) not in marks] for key, each in self.edges.items()}
        return frozenset(reachable(edges, self.effective_roles))

    def anywhere(self, name: str) -> AccountRecord | None:
        """Return the account for all hosts, or MariaDB's role."""
        return self.accounts.get((name, ANY_HOST)) or self.accounts.get((name, ROLE_HOST))

    def host_specific(self, name: str) -> list[AccountRecord]:
        """Return the other accounts of this name."""
        own = self.anywhere(name)
        return [one for one in self.accounts.values() if one.key[0] == name and one is not own]

    def state(self, account: AccountRecord, mark: str | None) -> UserState:
        """Return the state with memberships and all rights through them."""
        memberships = frozenset(
            RoleMembership(
                edge.role[0], _grantor(edge.role[1]), edge.admin, edge.role[0] in account.default_roles, True
            )
            for edge in self.edges.get(account.key, ())
        )
        can_escalate, replicates = self.can_escalate(account)
        return replace(
            account.state,
            mark=mark,
            memberships=memberships,
            superuser=can_escalate,
            replication=replicates,
            acts_as=frozenset(account.acts_as),
            unrevocable=frozenset(self.unrevocable(account)),
        )

    def can_escalate(self, account: AccountRecord) -> tuple[bool, bool]:
        """Return two flags: can it become administrator, and may it replicate."""
        reached = self._with_roles([account.key])
        held = self.global_privileges(account.key)
        is_superuser = bool(held - HARMLESS - {REPLICATION}) or any(
            one.has_reserved_grants or one.acts_as for one in reached
        )
        return is_superuser, REPLICATION in held

    def global_privileges(self, key: AccountKey) -> set[str]:
        """Return its privileges on the whole server, including those of its roles."""
        return {privilege for one in self._with_roles([key]) for privilege in one.global_privileges}

    def unrevocable(self, account: AccountRecord) -> set[str]:
        """Return its privileges on the whole server that the administrator lacks.

        Only a holder of a privilege may revoke it. Dynamic privileges, whose names contain `_`, are an exception: an
        account that may write the server's own tables may revoke them, too.
        """
        own = [self.accounts[key] for key in self.effective_roles if key in self.accounts]
        unrevocable = (
            account.global_privileges
            - {word for one in own for word in one.global_privileges}
            - HARMLESS
            - {REPLICATION}
        )
        writes = {word for one in own for word in one.global_privileges - one.restricted}
        return {word for word in unrevocable if "_" not in word or not writes >= {"INSERT", "UPDATE", "DELETE"}}

    def _with_roles(self, keys: Iterable[AccountKey]) -> list[AccountRecord]:
        """Return these accounts and all their roles."""
        return [self.accounts[key] for key in reachable(self.edges, keys) if key in self.accounts]


def _grantor(host: str) -> str:
    return "" if host in (ANY_HOST, ROLE_HOST) else host


def reachable(edges: Mapping[AccountKey, Iterable[RoleEdge]], start: Iterable[AccountKey]) -> set[AccountKey]:
    """Return these accounts and all their roles, direct and indirect."""
    found: set[AccountKey] = set()
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += [edge.role for edge in edges.get(key, ())]
    return found


async def read_accounts(session: MySQLSession, names: Iterable[str], administrator: str) -> AccountCatalog:
    """Read these accounts, the administrator, and their roles."""
    active = await _active_roles(session)
    desired = {*names, administrator, *(name for name, _ in active)}
    edges = await (_mariadb_edges if session.is_mariadb else _mysql_edges)(session)
    reachable_keys = {name for name, _ in reachable(edges, [key for key in edges if key[0] in desired])}
    found = await (_mariadb_accounts if session.is_mariadb else _mysql_accounts)(
        session, sorted(desired | reachable_keys)
    )
    accounts = {account.key: account for account in found}
    for key in await _with_reserved_grants(session, sorted(desired | reachable_keys)):
        if (account := accounts.get(key)) is not None:
            account.has_reserved_grants = True
    for key, other in await _proxies(session, sorted(desired | reachable_keys)):
        if (account := accounts.get(key)) is not None:
            account.acts_as.add(other)
    own = {key for key in accounts if key[0] == administrator}
    return AccountCatalog(accounts, edges, frozenset(own | reachable(edges, active)))


async def _active_roles(session: MySQLSession) -> set[AccountKey]:
    """Return the active roles of the administrator.

    Not all granted roles are active, and mandatory roles are active, too.
    """
    [row] = await session.rows("inspecting the session", "SELECT CURRENT_ROLE() AS roles")
    roles_text = row["roles"] or ""
    if session.is_mariadb:
        return {(roles_text, ROLE_HOST)} if roles_text else set()
    quoted = re.findall(r"`((?:[^`]|``)*)`@`((?:[^`]|``)*)`", roles_text)
    return {(name.replace("``", "`"), host.replace("``", "`")) for name, host in quoted}


async def _with_reserved_grants(session: MySQLSession, names: list[str]) -> set[AccountKey]:
    """Return accounts with privileges on the server's own databases.

    A pattern of names counts if it matches such a database. These databases contain verifiers of passwords,
    ownership
    marks, and routines that others call.
    """
    found: set[AccountKey] = set()
    matches = " OR ".join(f"'{database}' LIKE Db" for database in sorted(RESERVED_DATABASES))
    for table in TABLES:
        rows = await session.rows(
            "searching for privileges in the server's own databases",
            f"SELECT User, Host FROM mysql.{table} WHERE User IN ? AND ({matches})",  # noqa: S608
            names,
        )
        found |= {(row["User"], row["Host"]) for row in rows}
    return found


async def _proxies(session: MySQLSession, names: list[str]) -> list[tuple[AccountKey, str]]:
    rows = await session.rows(
        "searching for accounts that can be in another account's place",
        "SELECT User, Host, Proxied_user AS other, Proxied_host AS there FROM mysql.proxies_priv WHERE User IN ?",
        names,
    )
    return [((row["User"], row["Host"]), quoted_account(row["other"], row["there"])) for row in rows]


async def _mysql_edges(session: MySQLSession) -> Mapping[AccountKey, tuple[RoleEdge, ...]]:
    rows = await session.rows(
        "inspecting roles",
        "SELECT TO_USER AS member, TO_HOST AS there, FROM_USER AS role, FROM_HOST AS host,"
        " WITH_ADMIN_OPTION AS admin FROM mysql.role_edges",
    )
    return _edges_by_member(
        RoleEdge((r["member"], r["there"]), (r["role"], r["host"]), r["admin"] == "Y") for r in rows
    )


async def _mariadb_edges(session: MySQLSession) -> Mapping[AccountKey, tuple[RoleEdge, ...]]:
    rows = await session.rows(
        "inspecting roles",
        "SELECT User AS member, Host AS there, Role AS role, Admin_option AS admin FROM mysql.roles_mapping",
    )
    return _edges_by_member(
        RoleEdge((r["member"], r["there"]), (r["role"], ROLE_HOST), r["admin"] == "Y") for r in rows
    )


def _edges_by_member(edges: Iterable[RoleEdge]) -> Mapping[AccountKey, tuple[RoleEdge, ...]]:
    found: dict[AccountKey, tuple[RoleEdge, ...]] = defaultdict(tuple)
    for edge in edges:
        found[edge.member] += (edge,)
    return dict(found)


async def _mysql_accounts(session: MySQLSession, names: list[str]) -> list[AccountRecord]:
    rows = await session.rows(
        "searching for users",
        "SELECT User, Host, plugin, CONVERT(authentication_string USING latin1) AS kept, account_locked,"
        " password_expired, COALESCE(password_lifetime, @@default_password_lifetime) AS lifetime, ssl_type,"
        " max_questions, max_updates, max_connections, max_user_connections,"
        " JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.additional_password')) AS retained,"
        " JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.Restrictions')) AS restrictions"
        " FROM mysql.user WHERE User IN ?",
        names,
    )
    # Some collations treat "orders" and "Orders" as equal.
    found = {
        key: AccountRecord(key, _mysql_state(row), restricted=_partial_revokes(row["restrictions"]))
        for row in rows
        if (key := (row["User"], row["Host"]))[0] in names
    }
    by_grantee = {account.grantee: account for account in found.values()}
    for row in await session.rows(
        "inspecting privileges on the whole server",
        "SELECT GRANTEE AS grantee, PRIVILEGE_TYPE AS privilege, IS_GRANTABLE AS grantable"
        " FROM information_schema.USER_PRIVILEGES WHERE GRANTEE IN ?",
        [*by_grantee],
    ):
        if (account := by_grantee.get(row["grantee"])) is not None:
            word, option = row["privilege"].upper(), row["grantable"] == "YES"
            account.global_privileges |= {word, *([GRANT_OPTION] if option and "_" not in word else [])} - {"USAGE"}
            account.grantable |= {word} if option and "_" in word else set()
    for row in await session.rows(
        "inspecting roles",
        "SELECT USER AS name, HOST AS host, DEFAULT_ROLE_USER AS role FROM mysql.default_roles WHERE USER IN ?",
        names,
    ):
        if (account := found.get((row["name"], row["host"]))) is not None:
            account.default_roles |= {row["role"]}
    return list(found.values())


def _partial_revokes(attributes: str | None) -> frozenset[str]:
    """Parse privileges that a partial revoke excludes on `mysql`.

    Source: MySQL Reference Manual, 8.2.12 "Privilege Restriction Using Partial Revokes".
    """
    restrictions: list[dict[str, Any]] = json.loads(attributes) if attributes else []
    return frozenset(word for one in restrictions if one["Database"] == "mysql" for word in one["Privileges"])


_CERTIFICATE_REQUIREMENTS = ("X509", "SPECIFIED", 2, 3)
"""Kinds of TLS that accounts require.

MySQL stores words and MariaDB numbers.
"""


def _mysql_state(row: Mapping[str, Any]) -> UserState:
    expired = row["password_expired"] == "Y" or row["lifetime"] != 0  # noqa: S105
    verifier, second_verifier = row["kept"], row["retained"]
    return UserState(
        row["User"],
        locked=row["account_locked"] == "Y",
        verifier=f"{row['plugin']}:{verifier}" if verifier and not expired else None,
        second_verifier=f"{row['plugin']}:{second_verifier}" if second_verifier else None,
        certificate=row["ssl_type"] in _CERTIFICATE_REQUIREMENTS,
        connection_limit=row["max_user_connections"] or -1,
        limits=AccountLimits(row["max_questions"], row["max_updates"], row["max_connections"]),
    )


async def _mariadb_accounts(session: MySQLSession, names: list[str]) -> list[AccountRecord]:
    rows = await session.rows(
        "searching for users",
        "SELECT User, Host, Priv, @@default_password_lifetime AS lifetime FROM mysql.global_priv WHERE User IN ?",
        names,
    )
    return [
        _mariadb_account((row["User"], row["Host"]), row["Priv"], row["lifetime"])
        for row in rows
        if row["User"] in names
    ]


def _mariadb_account(key: AccountKey, access_json: str, usual_lifetime: int) -> AccountRecord:
    access_record = cast("dict[str, Any]", json.loads(access_json))
    verifier, *others = [
        _authentication_method(access_record if method == {} else method)
        for method in access_record.get("auth_or", ({},))
    ]
    access = int(access_record.get("access", 0))
    held = {
        _BITS[bit] if bit < len(_BITS) else f"UNKNOWN {bit}"
        for bit in range(access.bit_length())
        if access >> bit & 1
    }
    lifetime = int(access_record.get("password_lifetime", -1))
    # 0 means that it has expired.
    expired = access_record.get("password_last_changed") == 0 or (lifetime if lifetime >= 0 else usual_lifetime) != 0
    connections = int(access_record.get("max_user_connections", 0))
    state = UserState(
        key[0],
        login=not access_record.get("is_role"),
        locked=bool(access_record.get("account_locked")),
        verifier=verifier if verifier.partition(":")[2] and not expired else None,
        second_verifier="; ".join(others) or None,
        certificate=access_record.get("ssl_type") in _CERTIFICATE_REQUIREMENTS,
        # 0 means no limit, and a negative number allows no connection.
        connection_limit=max(connections, 0) if connections else -1,
        limits=AccountLimits(
            access_record.get("max_questions", 0),
            access_record.get("max_updates", 0),
            access_record.get("max_connections", 0),
        ),
    )
    default = access_record.get("default_role")
    return AccountRecord(key, state, frozenset({default} if default else ()), held)


def _authentication_method(access: Mapping[str, Any]) -> str:
    """Return one of an account's authentication methods as a verifier.

    Source: MariaDB, sql/sql_acl.cc, `auth_or`.
    """
    return f"{access.get('plugin', '')}:{access.get('authentication_string', '')}"
