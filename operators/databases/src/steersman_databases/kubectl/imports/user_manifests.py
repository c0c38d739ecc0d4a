"""Manifests of ``DatabaseUser`` for the accounts of an import's source.

Privileges are declared object by object, so that a user gets no more than on the source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from steersman.meta import to_builtins
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.api.grants import PrivilegeName
from steersman_databases.features.dump.import_check import FoundAccount, FoundGrant

_PRIVILEGES = frozenset(get_args(PrivilegeName))
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_MAX_NAME_LENGTH = 50
_MAX_USER_LENGTH = 63
_MAX_ROLES = 64
_ANY_HOST = "%"
_FIELDS = {"table": "tables", "sequence": "sequences", "function": "functions"}


def user_manifests(
    database: Database, accounts: Iterable[FoundAccount]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the manifest of each account, and notes about omissions.

    The owner of the new database is left out: the ``Database`` declares it.
    """
    seen: set[str] = set()
    for account in accounts:
        if account.name == (database.spec.username or database.database_name) or not _is_valid(account.name):
            continue
        if account.name in seen:
            continue
        seen.add(account.name)
        yield _manifest(database, account), list(_notes(account))


def skipped_accounts(accounts: Iterable[FoundAccount]) -> list[str]:
    """Return names that no ``DatabaseUser`` can have, and further hosts."""
    found, seen = list[str](), set[str]()
    for account in accounts:
        if not _is_valid(account.name):
            found.append(repr(account.name))
        elif account.name in seen:
            found.append(f"{account.name}@{account.host}")
        seen.add(account.name)
    return found


def _is_valid(name: str) -> bool:
    return 0 < len(name) <= _MAX_USER_LENGTH and name.isprintable()


def _manifest(database: Database, account: FoundAccount) -> dict[str, Any]:
    resource = DatabaseUser.api_resource
    limits = {name: value for name, value in account.limits.items() if value}
    options: Mapping[str, tuple[Any, Any]] = {
        "login": (account.login, True),
        "inherit": (account.inherit, True),
        "createDatabase": (account.create_database, False),
        "replication": (account.replication, False),
        "bypassRowLevelSecurity": (account.bypass_row_level_security, False),
        "connectionLimit": (account.connection_limit, -1),
        "validUntil": (account.valid_until, None),
        "limits": (limits, {}),
    }
    spec: dict[str, Any] = {
        "user": account.name,
        **_server(database),
        # The import creates the accounts without a login.
        "adopt": True,
        **{name: value for name, (value, default) in options.items() if value != default},
    }
    if account.roles:
        spec["roles"] = [{"name": each.name, **({"admin": True} if each.admin else {})} for each in _roles(account)]
    if grants := [each for found in account.grants if (each := _grant(database, found)) is not None]:
        spec["grants"] = grants
    if any(_notes(account)):
        # Undeclared privileges must stay.
        spec["undeclaredGrants"] = "Keep"
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": _object_name(database, account.name), "namespace": database.metadata.namespace},
        "spec": spec,
    }


def _server(database: Database) -> dict[str, Any]:
    if database.spec.server_ref is not None:
        return {"serverRef": to_builtins(database.spec.server_ref), "engine": database.engine}
    if database.spec.cluster_ref is not None:
        return {"clusterRef": to_builtins(database.spec.cluster_ref)}
    # The cluster of a Database has its name.
    kind = {"kind": "MySQLCluster"} if database.engine == "mysql" else {}
    return {"clusterRef": {"name": database.metadata.name, **kind}}


def _object_name(database: Database, user: str) -> str:
    """Return a name for the object. Users whose names differ by other characters get different ones."""
    plain = _NOT_IN_A_NAME.sub("-", user.lower()).strip("-")
    name = f"{database.metadata.name}-{plain}"[:_MAX_NAME_LENGTH].strip("-")
    if plain == user and len(name) == len(plain) + len(database.metadata.name) + 1:
        return name
    return f"{name}-{hashlib.sha256(user.encode()).hexdigest()[:6]}"


def _roles(account: FoundAccount) -> list[Any]:
    unique = {each.name: each for each in account.roles}
    return list(unique.values())[:_MAX_ROLES]


def _grant(database: Database, found: FoundGrant) -> dict[str, Any] | None:
    """Return a grant, or None without a privilege that users can have."""
    privileges = [each for each in found.privileges if each in _PRIVILEGES]
    if not privileges:
        return None
    field = _FIELDS.get(found.kind)
    return {
        "database": database.database_name,
        **({"schema": found.schema} if found.schema else {}),
        **({field: list(found.objects)} if field is not None else {}),
        **({"columns": list(found.columns)} if found.columns else {}),
        "privileges": privileges,
        **({"withGrantOption": True} if found.option else {}),
    }


def _notes(account: FoundAccount) -> Iterator[str]:
    others = sorted({name for grant in account.grants for name in grant.privileges if name not in _PRIVILEGES})
    if others:
        yield f"without the privileges {', '.join(others)}, which a DatabaseUser cannot have"
    if account.omitted_grants:
        yield f"without {account.omitted_grants} more grants: a DatabaseUser has at most 64"
    if account.host not in (_ANY_HOST, ""):
        yield f"on the source only from host {account.host}: a DatabaseUser logs in from every host"
