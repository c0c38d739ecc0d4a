"""One database with one user who owns it, on a server that knows no other claims: what engines are held to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from steersman_databases.engines import Change, Contents, Credentials, Endpoint, EngineError
from steersman_databases.engines.desired import Claim, DesiredDatabase, DesiredUser
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.settle import settle

_ANY = Verification(TLSMode.REQUIRE)


@dataclass(frozen=True, slots=True)
class Desired:
    """One database and the one user who may do everything in it, and nothing outside."""

    database: str
    username: str
    password: str = field(repr=False)

    @property
    def credentials(self) -> Credentials:
        """The user's."""
        return Credentials(self.username, self.password)


async def ensure(
    contents: Contents,
    endpoint: Endpoint,
    administrator: Credentials,
    desired: Desired,
    verification: Verification = _ANY,
    timeout: float = 30.0,
    claim: Claim | None = None,
) -> tuple[Change, ...]:
    """Makes the server hold the desired database, user, password and grants in `timeout` seconds at most.

    Says what was changed: nothing where all is as desired.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    user = DesiredUser(desired.username, desired.password, exact=False, claim=claim)
    database = DesiredDatabase(desired.database, desired.username, claim=claim)
    for one in (user, database):
        contents.check(one, administrator.username)
    login = Login(administrator.username, administrator.password)
    sessions = contents.connect(Server(contents.name, endpoint, login, verification))
    changes: tuple[Change, ...] = ()
    try:
        for one in (user, database):
            left = deadline - asyncio.get_running_loop().time()
            changes += await settle(contents, sessions, one, timeout=max(left, 0.0))
    except EngineError as error:
        error.changes = changes + error.changes
        raise
    finally:
        await sessions.close()
    return changes
