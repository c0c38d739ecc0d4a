"""What can go wrong between the operator and a database server.

```
EngineError
├── InvalidName            the spec asks for something that can never be; retrying is of no use
├── UnknownEngine          no such engine
├── UnsupportedVersion     the engine exists, this version of it does not
├── ServerUnreachable      no connection, no answer in time, starting, stopping: try again later
├── AdministratorRejected  the server answers, but does not take the administrator's credentials
└── SqlFailed              the server refused a statement
```

No message, attribute or chained exception holds a password: they end in Events, conditions and logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .port import Change, Endpoint


class EngineError(Exception):
    """Base of all errors here.

    `changes` holds what had been changed on the server before the error, so that it can still be reported.
    """

    changes: tuple[Change, ...] = ()


class InvalidName(EngineError):
    """A database name, a username or a password that the engine cannot or must not use.

    `field` is the field as the user wrote it (`databaseName`, `username`, `password`), `reason` says what is
    wrong and what to do instead.
    """

    def __init__(self, field: str, value: str, reason: str) -> None:
        shown = f'{field} "{value}"' if field != "password" else "the password"
        super().__init__(f"{shown} cannot be used: {reason}")
        self.field = field
        self.reason = reason


class UnknownEngine(EngineError):
    """There is no engine of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f'engine "{name}" is unknown: use {_either(known)}')
        self.name = name


class UnsupportedVersion(EngineError):
    """The engine is known, but not in this version."""

    def __init__(self, engine: str, version: str, supported: Iterable[str]) -> None:
        super().__init__(f'version "{version}" of {engine} is not supported: use {_either(supported)}')
        self.engine = engine
        self.version = version


class ServerUnreachable(EngineError):
    """The server cannot be reached, does not answer in time, or is starting or stopping. Worth a retry."""

    def __init__(self, endpoint: Endpoint, reason: str) -> None:
        super().__init__(f"cannot reach {endpoint}: {reason}")
        self.endpoint = endpoint
        self.reason = reason


class AdministratorRejected(EngineError):
    """The server does not accept the administrator's username and password."""

    def __init__(self, username: str) -> None:
        super().__init__(
            f'the server rejected the administrator "{username}": the administrator\'s Secret does not hold '
            "the password that this server's data was made with"
        )
        self.username = username


class SqlFailed(EngineError):
    """The server refused a statement.

    `sqlstate` is the SQL standard's five characters where the server sent them, otherwise `None`; `doing`
    says in words what was tried.
    """

    def __init__(self, doing: str, sqlstate: str | None, message: str) -> None:
        super().__init__(f"{doing}: {message}" + (f" (SQLSTATE {sqlstate})" if sqlstate else ""))
        self.doing = doing
        self.sqlstate = sqlstate
        self.message = message


def _either(names: Iterable[str]) -> str:
    return " or ".join(f'"{name}"' for name in sorted(names))
