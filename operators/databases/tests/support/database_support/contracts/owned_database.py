"""One database with one user who owns it, on a server that knows no other claims: what engines are held to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from steersman_databases.engines import EngineError, ServerEndpoint, SqlChange, SqlCredentials, SqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark
from steersman_databases.engines.sql.reconcile_sql import reconcile

_ANY = Verification(TLSMode.REQUIRE)


@dataclass(frozen=True, slots=True)
class OwnedDatabase:
    """One database and the one user who may do everything in it, and nothing outside."""

    database: str
    username: str
    password: str = field(repr=False)

    @property
    def credentials(self) -> SqlCredentials:
        """The user's."""
        return SqlCredentials(self.username, self.password)


async def ensure(
    contents: SqlEngine,
    endpoint: ServerEndpoint,
    administrator: SqlCredentials,
    desired: OwnedDatabase,
    verification: Verification = _ANY,
    timeout: float = 30.0,
    claim: OwnershipMark | None = None,
    adopt: bool = False,
) -> tuple[SqlChange, ...]:
    """Makes the server hold the desired database, user, password and grants in `timeout` seconds at most.

    Says what was changed: nothing where all is as desired.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    user = DesiredUser(desired.username, desired.password, revoke_undeclared=False, mark=claim, adopt=adopt)
    database = DesiredDatabase(desired.database, desired.username, mark=claim, adopt=adopt)
    for one in (user, database):
        contents.check(one, administrator.username)
    login = Login(administrator.username, administrator.password)
    sessions = contents.connect(DatabaseServer(contents.name, endpoint, login, verification))
    changes: tuple[SqlChange, ...] = ()
    try:
        for one in (user, database):
            left = deadline - asyncio.get_running_loop().time()
            changes += await reconcile(contents, sessions, one, timeout=max(left, 0.0))
    except EngineError as error:
        error.changes = changes + error.changes
        raise
    finally:
        await sessions.close()
    return changes
