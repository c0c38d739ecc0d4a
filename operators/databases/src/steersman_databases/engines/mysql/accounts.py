"""The accounts and roles of a MySQL or MariaDB server, as its own tables hold them: many with one query.

MySQL's roles are accounts that others were granted; MariaDB's are a kind of their own, with no host.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..desired import HourlyLimits
from ..granting import GRANT_OPTION
from ..survey import Membership, UserState
from .grants import HARMLESS, REPLICATION
from .names import RESERVED_DATABASES
from .session import ANYWHERE, Session, account

Key = tuple[str, str]
"""Name and host."""

NOWHERE = ""
"""In a host's place: a role of MariaDB's."""

TABLES = ("db", "tables_priv", "columns_priv", "procs_priv")
"""In which the server keeps what is granted on less than all of it."""

# MariaDB, sql/privilege.h: of roles, the tables of information_schema say nothing on these.
_BITS = (
    *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "RELOAD", "SHUTDOWN", "PROCESS", "FILE"),
    *(GRANT_OPTION, "REFERENCES", "INDEX", "ALTER", "SHOW DATABASES", "SUPER", "CREATE TEMPORARY TABLES"),
    *("LOCK TABLES", "EXECUTE", "REPLICATION SLAVE", "REPLICATION CLIENT", "CREATE VIEW", "SHOW VIEW"),
    *("CREATE ROUTINE", "ALTER ROUTINE", "CREATE USER", "EVENT", "TRIGGER", "CREATE TABLESPACE", "DELETE HISTORY"),
    *("SET USER", "FEDERATED ADMIN", "CONNECTION ADMIN", "READ_ONLY ADMIN", "REPLICATION SLAVE ADMIN"),
    *("REPLICATION MASTER ADMIN", "BINLOG ADMIN", "BINLOG REPLAY", "SLAVE MONITOR", "SHOW CREATE ROUTINE"),
)


@dataclass(slots=True)
class Account:
    """What the server says of one. `on_server` are its own privileges on the whole server, `in_reserved` says that it
    has any in what is the server's own, `acts_as` are those in whose place it may be, by PROXY. `hands_on` are the
    dynamic ones that it may hand on: of the others there is one option for all. `restricted` are those that it has on
    the whole server, but not on the server's own tables (MySQL's partial_revokes).
    """

    key: Key
    state: UserState
    default_roles: frozenset[str] = frozenset()
    on_server: set[str] = field(default_factory=set[str])
    hands_on: set[str] = field(default_factory=set[str])
    in_reserved: bool = False
    acts_as: set[str] = field(default_factory=set[str])
    restricted: frozenset[str] = frozenset()

    @property
    def grantee(self) -> str:
        """As `information_schema` writes it: between quotes, and with none of them escaped."""
        return f"'{self.key[0]}'@'{self.key[1]}'"


@dataclass(frozen=True, slots=True)
class Edge:
    """Being a member of a role, directly."""

    member: Key
    role: Key
    admin: bool


@dataclass(frozen=True, slots=True)
class Accounts:
    """All of some names, whatever their hosts, and of the roles that they have, directly or by others.

    `acting` is who looks, with the roles by which it does: those that are active, and those that these have.
    """

    found: Mapping[Key, Account]
    edges: Mapping[Key, tuple[Edge, ...]]
    acting: frozenset[Key]

    def given(self, marks: Mapping[tuple[str, str], str]) -> frozenset[Key]:
        """Who looks, and the roles that it has. Not those that it made, whose member it is on MariaDB by that."""
        edges = {key: [one for one in each if ("user", one.role[0]) not in marks] for key, each in self.edges.items()}
        return frozenset(reachable(edges, self.acting))

    def own(self, name: str) -> Account | None:
        """Who logs in from everywhere, or MariaDB's role."""
        return self.found.get((name, ANYWHERE)) or self.found.get((name, NOWHERE))

    def others(self, name: str) -> list[Account]:
        """Those of the same name that are not that one."""
        own = self.own(name)
        return [one for one in self.found.values() if one.key[0] == name and one is not own]

    def state(self, account: Account, mark: str | None) -> UserState:
        """With its memberships, and what it can reach by them."""
        memberships = frozenset(
            Membership(edge.role[0], _grantor(edge.role[1]), edge.admin, edge.role[0] in account.default_roles, True)
            for edge in self.edges.get(account.key, ())
        )
        mighty, replicates = self.might(account)
        return replace(
            account.state,
            mark=mark,
            memberships=memberships,
            superuser=mighty,
            replication=replicates,
            acts_as=frozenset(account.acts_as),
            out_of_reach=frozenset(self.out_of_reach(account)),
        )

    def might(self, account: Account) -> tuple[bool, bool]:
        """Whether it could become the administrator, and whether it may replicate."""
        reached = self._reached([account.key])
        held = self.everywhere(account.key)
        mighty = bool(held - HARMLESS - {REPLICATION}) or any(one.in_reserved or one.acts_as for one in reached)
        return mighty, REPLICATION in held

    def everywhere(self, key: Key) -> set[str]:
        """Its privileges on the whole server, by itself or by a role."""
        return {privilege for one in self._reached([key]) for privilege in one.on_server}

    def out_of_reach(self, account: Account) -> set[str]:
        """Its privileges on the whole server that the administrator has not: only who has one may take it away.

        But for the dynamic ones, whose names have a `_`: those takes who may write the server's own tables, too.
        """
        own = [self.found[key] for key in self.acting if key in self.found]
        beyond = account.on_server - {word for one in own for word in one.on_server} - HARMLESS - {REPLICATION}
        writes = {word for one in own for word in one.on_server - one.restricted}
        return {word for word in beyond if "_" not in word or not writes >= {"INSERT", "UPDATE", "DELETE"}}

    def _reached(self, keys: Iterable[Key]) -> list[Account]:
        """These, and the roles that they have."""
        return [self.found[key] for key in reachable(self.edges, keys) if key in self.found]


def _grantor(host: str) -> str:
    return "" if host in (ANYWHERE, NOWHERE) else host


def reachable(edges: Mapping[Key, Iterable[Edge]], start: Iterable[Key]) -> set[Key]:
    """These, and all roles that they have, directly or by others."""
    found: set[Key] = set()
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += [edge.role for edge in edges.get(key, ())]
    return found


async def read_accounts(session: Session, names: Iterable[str], administrator: str) -> Accounts:
    """The accounts and roles of these names and the administrator's, and all that could be theirs by a role."""
    active = await _active_roles(session)
    wanted = {*names, administrator, *(name for name, _ in active)}
    edges = await (_mariadb_edges if session.is_mariadb else _mysql_edges)(session)
    reached = {name for name, _ in reachable(edges, [key for key in edges if key[0] in wanted])}
    found = await (_mariadb_accounts if session.is_mariadb else _mysql_accounts)(session, sorted(wanted | reached))
    accounts = {account.key: account for account in found}
    for key in await _in_reserved(session, sorted(wanted | reached)):
        if (account := accounts.get(key)) is not None:
            account.in_reserved = True
    for key, other in await _proxies(session, sorted(wanted | reached)):
        if (account := accounts.get(key)) is not None:
            account.acts_as.add(other)
    own = {key for key in accounts if key[0] == administrator}
    return Accounts(accounts, edges, frozenset(own | reachable(edges, active)))


async def _active_roles(session: Session) -> set[Key]:
    """By which the administrator acts: of what it was granted not all, and of mandatory roles, too."""
    [row] = await session.rows("looking at the session", "SELECT CURRENT_ROLE() AS roles")
    told = row["roles"] or ""
    if session.is_mariadb:
        return {(told, NOWHERE)} if told else set()
    quoted = re.findall(r"`((?:[^`]|``)*)`@`((?:[^`]|``)*)`", told)
    return {(name.replace("``", "`"), host.replace("``", "`")) for name, host in quoted}


async def _in_reserved(session: Session, names: list[str]) -> set[Key]:
    """Who was granted anything in the server's own databases, or in a pattern of names that is also theirs: there are
    the passwords' verifiers and our marks, and routines that others call.
    """
    found: set[Key] = set()
    matches = " OR ".join(f"'{database}' LIKE Db" for database in sorted(RESERVED_DATABASES))
    for table in TABLES:
        rows = await session.rows(
            "looking for rights in the server's own databases",
            f"SELECT User, Host FROM mysql.{table} WHERE User IN ? AND ({matches})",  # noqa: S608
            names,
        )
        found |= {(row["User"], row["Host"]) for row in rows}
    return found


async def _proxies(session: Session, names: list[str]) -> list[tuple[Key, str]]:
    rows = await session.rows(
        "looking for who may be in another account's place",
        "SELECT User, Host, Proxied_user AS other, Proxied_host AS there FROM mysql.proxies_priv WHERE User IN ?",
        names,
    )
    return [((row["User"], row["Host"]), account(row["other"], row["there"])) for row in rows]


async def _mysql_edges(session: Session) -> Mapping[Key, tuple[Edge, ...]]:
    rows = await session.rows(
        "looking at roles",
        "SELECT TO_USER AS member, TO_HOST AS there, FROM_USER AS role, FROM_HOST AS host,"
        " WITH_ADMIN_OPTION AS admin FROM mysql.role_edges",
    )
    return _by_member(Edge((r["member"], r["there"]), (r["role"], r["host"]), r["admin"] == "Y") for r in rows)


async def _mariadb_edges(session: Session) -> Mapping[Key, tuple[Edge, ...]]:
    rows = await session.rows(
        "looking at roles",
        "SELECT User AS member, Host AS there, Role AS role, Admin_option AS admin FROM mysql.roles_mapping",
    )
    return _by_member(Edge((r["member"], r["there"]), (r["role"], NOWHERE), r["admin"] == "Y") for r in rows)


def _by_member(edges: Iterable[Edge]) -> Mapping[Key, tuple[Edge, ...]]:
    found: dict[Key, tuple[Edge, ...]] = defaultdict(tuple)
    for edge in edges:
        found[edge.member] += (edge,)
    return dict(found)


async def _mysql_accounts(session: Session, names: list[str]) -> list[Account]:
    rows = await session.rows(
        "looking for users",
        "SELECT User, Host, plugin, CONVERT(authentication_string USING latin1) AS kept, account_locked,"
        " password_expired, COALESCE(password_lifetime, @@default_password_lifetime) AS lifetime, ssl_type,"
        " max_questions, max_updates, max_connections, max_user_connections,"
        " JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.additional_password')) AS retained,"
        " JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.Restrictions')) AS restrictions"
        " FROM mysql.user WHERE User IN ?",
        names,
    )
    # Some collations take "orders" and "Orders" for the same.
    found = {
        key: Account(key, _mysql_state(row), restricted=_restricted(row["restrictions"]))
        for row in rows
        if (key := (row["User"], row["Host"]))[0] in names
    }
    by_grantee = {account.grantee: account for account in found.values()}
    for row in await session.rows(
        "looking at rights over the whole server",
        "SELECT GRANTEE AS grantee, PRIVILEGE_TYPE AS privilege, IS_GRANTABLE AS grantable"
        " FROM information_schema.USER_PRIVILEGES WHERE GRANTEE IN ?",
        [*by_grantee],
    ):
        if (account := by_grantee.get(row["grantee"])) is not None:
            word, option = row["privilege"].upper(), row["grantable"] == "YES"
            account.on_server |= {word, *([GRANT_OPTION] if option and "_" not in word else [])} - {"USAGE"}
            account.hands_on |= {word} if option and "_" in word else set()
    for row in await session.rows(
        "looking at roles",
        "SELECT USER AS name, HOST AS host, DEFAULT_ROLE_USER AS role FROM mysql.default_roles WHERE USER IN ?",
        names,
    ):
        if (account := found.get((row["name"], row["host"]))) is not None:
            account.default_roles |= {row["role"]}
    return list(found.values())


def _restricted(told: str | None) -> frozenset[str]:
    """Source: MySQL Reference Manual, 8.2.12 "Privilege Restriction Using Partial Revokes"."""
    restrictions: list[dict[str, Any]] = json.loads(told) if told else []
    return frozenset(word for one in restrictions if one["Database"] == "mysql" for word in one["Privileges"])


_WITH_CERTIFICATE = ("X509", "SPECIFIED", 2, 3)
"""Kinds of TLS that accounts are to log in by, in MySQL's words and MariaDB's numbers."""


def _mysql_state(row: Mapping[str, Any]) -> UserState:
    expired = row["password_expired"] == "Y" or row["lifetime"] != 0  # noqa: S105
    kept, retained = row["kept"], row["retained"]
    return UserState(
        row["User"],
        locked=row["account_locked"] == "Y",
        verifier=f"{row['plugin']}:{kept}" if kept and not expired else None,
        second_verifier=f"{row['plugin']}:{retained}" if retained else None,
        certificate=row["ssl_type"] in _WITH_CERTIFICATE,
        connection_limit=row["max_user_connections"] or -1,
        limits=HourlyLimits(row["max_questions"], row["max_updates"], row["max_connections"]),
    )


async def _mariadb_accounts(session: Session, names: list[str]) -> list[Account]:
    rows = await session.rows(
        "looking for users",
        "SELECT User, Host, Priv, @@default_password_lifetime AS lifetime FROM mysql.global_priv WHERE User IN ?",
        names,
    )
    return [
        _mariadb_account((row["User"], row["Host"]), row["Priv"], row["lifetime"])
        for row in rows
        if row["User"] in names
    ]


def _mariadb_account(key: Key, told: str, usual_lifetime: int) -> Account:
    said = cast("dict[str, Any]", json.loads(told))
    verifier, *others = [_way(said if way == {} else way) for way in said.get("auth_or", ({},))]
    access = int(said.get("access", 0))
    held = {
        _BITS[bit] if bit < len(_BITS) else f"UNKNOWN {bit}"
        for bit in range(access.bit_length())
        if access >> bit & 1
    }
    lifetime = int(said.get("password_lifetime", -1))
    # 0 is one that has expired.
    expired = said.get("password_last_changed") == 0 or (lifetime if lifetime >= 0 else usual_lifetime) != 0
    connections = int(said.get("max_user_connections", 0))
    state = UserState(
        key[0],
        login=not said.get("is_role"),
        locked=bool(said.get("account_locked")),
        verifier=verifier if verifier.partition(":")[2] and not expired else None,
        second_verifier="; ".join(others) or None,
        certificate=said.get("ssl_type") in _WITH_CERTIFICATE,
        # 0 is no limit there, and less lets nobody in.
        connection_limit=max(connections, 0) if connections else -1,
        limits=HourlyLimits(said.get("max_questions", 0), said.get("max_updates", 0), said.get("max_connections", 0)),
    )
    default = said.get("default_role")
    return Account(key, state, frozenset({default} if default else ()), held)


def _way(said: Mapping[str, Any]) -> str:
    """One of those by which an account opens, as a verifier. Source: MariaDB, sql/sql_acl.cc, `auth_or`."""
    return f"{said.get('plugin', '')}:{said.get('authentication_string', '')}"
