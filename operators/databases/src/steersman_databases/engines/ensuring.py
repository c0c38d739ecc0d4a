"""One database with one user who owns it, on a server of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from .desired import DesiredDatabase, DesiredUser
from .errors import EngineError
from .plan import Change
from .port import Contents
from .server import Credentials, Endpoint, Login, Server, Tenancy, TLSMode, Verification
from .settle import settle

_ANY = Verification(TLSMode.REQUIRE)


@dataclass(frozen=True, slots=True)
class Desired:
    """One database and the one user who may do everything in it, and nothing outside."""

    database: str
    username: str
    password: str = field(repr=False)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.username, self.password)


def check_names(contents: Contents, database: str, username: str, administrator: str) -> None:
    """Refuse names that the server could not, or must not, take. Needs no server.

    Raises `InvalidName` for the first field that is wrong.
    """
    contents.check(DesiredUser(username, "any"), administrator)
    contents.check(DesiredDatabase(database, username), administrator)


async def ensure(
    contents: Contents,
    endpoint: Endpoint,
    administrator: Credentials,
    desired: Desired,
    verification: Verification = _ANY,
    timeout: float = 30.0,
) -> tuple[Change, ...]:
    """Make the server hold the desired database, user, password and grants, and say what was changed.

    Looks first and changes only what differs: when all is as desired it writes nothing and returns an empty tuple.
    May be cut off at any point and called again, and may be called twice at once. Takes `timeout` seconds at most.

    Raises `InvalidName`, `ServerUnreachable`, `AdministratorRejected` or `SqlFailed`.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    owns = frozenset({desired.database})
    user = DesiredUser(desired.username, desired.password, exact=False, owns=owns)
    database = DesiredDatabase(desired.database, desired.username)
    for one in (user, database):
        contents.check(one, administrator.username)
    login = Login(administrator.username, administrator.password)
    sessions = contents.connect(Server(contents.name, endpoint, login, verification, Tenancy.ALONE))
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
