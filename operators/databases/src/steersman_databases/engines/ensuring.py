"""`Engine.ensure` in terms of `Contents`: one database with one user who owns it, on a server of their own."""

from __future__ import annotations

import asyncio

from .desired import DesiredDatabase, DesiredUser
from .errors import EngineError
from .plan import Change
from .port import Contents, Desired
from .server import Credentials, Endpoint, Login, Server, Tenancy, TLSMode, Verification
from .settle import settle


def check_names(contents: Contents, database: str, username: str, administrator: str) -> None:
    """See `Engine.check_names`."""
    contents.check(DesiredUser(username, "any"), administrator)
    contents.check(DesiredDatabase(database, username), administrator)


async def ensure(
    contents: Contents, endpoint: Endpoint, administrator: Credentials, desired: Desired, timeout: float
) -> tuple[Change, ...]:
    """See `Engine.ensure`."""
    deadline = asyncio.get_running_loop().time() + timeout
    owns = frozenset({desired.database})
    user = DesiredUser(desired.username, desired.password, exact=False, owns=owns)
    database = DesiredDatabase(desired.database, desired.username)
    for one in (user, database):
        contents.check(one, administrator.username)
    login = Login(administrator.username, administrator.password)
    sessions = contents.connect(Server(contents.name, endpoint, login, Verification(TLSMode.REQUIRE), Tenancy.ALONE))
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
