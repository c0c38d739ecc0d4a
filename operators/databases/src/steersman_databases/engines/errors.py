"""Errors between the operator and a database server.

```
EngineError
├── InvalidName            the spec requests a name that is never possible; a retry does not help
├── NotSupported           the engine, or this version, lacks a feature that the spec requests
├── NotPermitted           a guest requests an object that does not belong to its namespace
├── AlreadyExists          an object of this name exists and has no ownership mark of an existing namespace
├── OwnedByAnother         another object owns this name on the server
├── ImmutableProperty      it exists with another value that cannot be changed
├── ExtensionUnavailable   the server lacks the extension, or this version of it
├── OwnerMissing           the role that should own an object does not exist
├── DropBlocked            a user is not dropped: its objects would be lost
│   ├── NoReassignTarget   no role is named that could own its objects
│   └── DefinerInUse       a stored object acts as the user and fails without it
├── ObjectsMissing         all is done except what depends on missing objects
├── ConcurrentChange       another client changed the server at the same time: inspect again
├── UnknownEngine          there is no such engine
├── UnsupportedVersion     the engine exists, this version of it does not
├── ServerUnreachable      no connection, no response in time, starting, stopping: retry later
│   ├── AccessDenied       access rules do not let this user in from here, whatever the password
│   ├── CertificateRefused one side does not accept the certificate of the other
│   ├── LimitReached       the password is right, but a limit of connections or queries is reached
│   └── RoleMissing        a role that logs in without a password does not exist (yet)
├── AdministratorRejected  the server responds, but rejects the administrator's credentials
└── SqlFailed              the server refused a statement
    └── PrivilegeNotRevocable  a grant on a dropped database would apply to the next one of its name
```

No message, attribute or chained exception holds a password, because they end in Events, conditions and logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .server import ServerEndpoint
    from .sql.desired import OwnershipMark
    from .sql.sql_plan import SqlChange


class EngineError(Exception):
    """Base class of all errors of engines.

    Attributes:
        changes: changes on the server before the error, so that they can still be reported.
        advice: the next step, if it differs from the usual one of the reason. "" if the message contains it already.
    """

    changes: tuple[SqlChange, ...] = ()
    advice: ClassVar[str | None] = None


class InvalidName(EngineError):
    """Name or password that the engine cannot or must not use.

    Attributes:
        field: the field as the user wrote it (`databaseName`, `username`, `password`).
        reason: the problem, and what to do instead.
    """

    advice = ""

    def __init__(self, field: str, value: str, reason: str) -> None:
        shown = f'{field} "{value}"' if field != "password" else "the password"
        super().__init__(f"{shown} cannot be used: {reason}")
        self.field = field
        self.reason = reason


class NotPermitted(EngineError):
    """A guest on the server requests an object of another namespace."""

    def __init__(self, kind: str, name: str, reason: str = "is not declared in this namespace") -> None:
        super().__init__(f"{kind} {name} {reason}")


class NotSupported(EngineError):
    """The engine, or this version, lacks a feature that a field requests."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} cannot be used: {reason}")
        self.field = field
        self.reason = reason


class AlreadyExists(EngineError):
    """An object of this name exists without a valid ownership mark.

    It has none, or that of a previous namespace.
    """

    advice = ""

    def __init__(self, kind: str, name: str, *, of_previous_namespace: bool = False) -> None:
        found = "without an ownership mark"
        if of_previous_namespace:
            found = "and belongs to a deleted namespace that had the name of this one"
        super().__init__(
            f"{kind} {name} already exists on the server {found}."
            " Set spec.adopt to true to adopt it, or choose another name"
        )


class OwnedByAnother(EngineError):
    """An object on the server has another owner's mark.

    `owner` is that mark.
    """

    advice = ""

    def __init__(self, kind: str, name: str, owner: OwnershipMark) -> None:
        super().__init__(f"{kind} {name} on the server belongs to another object. Choose another name")
        self.owner = owner


class ImmutableProperty(EngineError):
    """It exists with another value, and the server cannot change it."""

    advice = ""

    def __init__(self, field: str, found: str, desired: str) -> None:
        super().__init__(
            f'{field} is "{found}" on the server and "{desired}" in the spec, and the server cannot change it.'
            " Declare the current value, or create a new database and copy the data"
        )
        self.field = field


class ExtensionUnavailable(EngineError):
    """The server's image lacks the extension, or this version of it."""

    def __init__(self, name: str, version: str | None, versions: Iterable[str]) -> None:
        known = f"; it has {_either(versions)}" if versions else ""
        super().__init__(f"the server has no extension {name}{f' {version}' if version else ''}{known}")


class OwnerMissing(EngineError):
    """The role that should own an object does not exist."""

    advice = ""

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"owner {owner} does not exist on the server. Declare it as a DatabaseUser, or set another owner"
        )
        self.owner = owner


_MAX_LISTED = 3


class DropBlocked(EngineError):
    """A user is not dropped because its objects would be lost.

    `cause` is the message without the next step.
    """

    advice = ""

    def __init__(self, cause: str, step: str) -> None:
        self.cause = cause
        super().__init__(f"{cause}. {step}")


class NoReassignTarget(DropBlocked):
    """A user owns objects, and no role is named as new owner."""

    def __init__(self, user: str, database: str, reason: str) -> None:
        cause = f"{user} owns objects in database {database} and {reason}"
        super().__init__(cause, "Set spec.reassignTo to the new owner")


class DefinerInUse(DropBlocked):
    """Views or stored programs act as a user and fail without it.

    `definers` lists them, such as `view shop.sums`.
    """

    def __init__(self, user: str, definers: Sequence[str]) -> None:
        omitted = len(definers) - _MAX_LISTED
        named = [*definers[:_MAX_LISTED], *([f"{omitted} more"] if omitted > 0 else [])]
        listed = " and ".join(part for part in (", ".join(named[:-1]), named[-1]) if part)
        super().__init__(f"{user} is the definer of {listed}", "Change their definer, or drop them")


class ObjectsMissing(EngineError):
    """Only these objects are missing for the declared state.

    `missing` are parts of a sentence.
    """

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__("; ".join(missing))
        self.missing = missing


class ConcurrentChange(EngineError):
    """The server's state changed during the work.

    This is not a failure, but a reason to inspect again.
    """

    advice = ""

    def __init__(self, failure: SqlFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class UnknownEngine(EngineError):
    """There is no engine of this name."""

    advice = ""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f'engine "{name}" is not supported. Use {_either(known)}')
        self.name = name


class UnsupportedVersion(EngineError):
    """The engine exists, but not in this version."""

    advice = ""

    def __init__(self, engine: str, version: str, supported: Iterable[str]) -> None:
        super().__init__(f'version "{version}" of {engine} is not supported. Use {_either(supported)}')
        self.engine = engine
        self.version = version


class ServerUnreachable(EngineError):
    """The server is unreachable, responds too late, or is starting or stopping.

    A retry makes sense.
    """

    def __init__(self, endpoint: ServerEndpoint, reason: str) -> None:
        super().__init__(f"cannot reach {endpoint}: {reason}")
        self.endpoint = endpoint
        self.reason = reason


class AccessDenied(ServerUnreachable):
    """The access rules do not let a user in by password.

    They may do so from other addresses. The server has not checked the password.
    """

    advice = (
        "Permit this user by scram-sha-256 from the operator's address, in postgresql.pgHba of a cluster or in"
        " pg_hba.conf of another server. A user with rotation has two roles: +name there matches both"
    )


class CertificateRefused(ServerUnreachable):
    """TLS fails: one side does not accept the other's certificate."""

    advice = (
        "Check that operator and server trust each other's CA, and that the server's certificate is valid for the "
        "host."
        " After the loss of a cluster's CA, its servers trust the new one within 3 minutes"
    )


class LimitReached(ServerUnreachable):
    """The server accepted the password, but a limit is reached.

    No further connection or query is allowed at the moment.
    """

    advice = "End sessions, or raise the limit in the message"


class RoleMissing(ServerUnreachable):
    """The role that logs in does not exist.

    Servers say so if no password is required. The roles of a cluster will be created soon.
    """

    advice = "Create the role. The operator creates those of its own clusters"


class AdministratorRejected(EngineError):
    """The server rejects the administrator's username or password.

    `message` is the server's error message.
    """

    def __init__(self, username: str, message: str) -> None:
        super().__init__(f'the server rejected the administrator "{username}": {message}')
        self.username = username


class LoginRejected(Exception):
    """The server does not let this user in.

    `number` is MySQL's error number, which identifies the cause.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class SqlFailed(EngineError):
    """The server refused a statement.

    Attributes:
        sqlstate: five characters of the SQL standard, or None if the server sent none.
        operation: description of the attempted operation.
    """

    def __init__(self, operation: str, sqlstate: str | None, message: str) -> None:
        super().__init__(f"{operation}: {message}" + (f" (SQLSTATE {sqlstate})" if sqlstate else ""))
        self.operation = operation
        self.sqlstate = sqlstate
        self.message = message

    @classmethod
    def from_failures(cls, failures: Sequence[SqlFailed]) -> SqlFailed:
        """Return the first of several failures, with the messages of all."""
        first = failures[0]
        first.args = ("; ".join(map(str, failures)),)
        return first


class PrivilegeNotRevocable(SqlFailed):
    """The administrator cannot revoke a privilege on a database.

    It was granted on a dropped database and would apply to the next one of its name, or to all users on an existing
    database.
    """

    advice = (
        "Revoke it manually (a row of mysql.db without a user: by DELETE and FLUSH PRIVILEGES), or grant the"
        " administrator the same privilege"
    )


def _either(names: Iterable[str]) -> str:
    *first, last = [f'"{name}"' for name in sorted(names)]
    return f"{', '.join(first)} or {last}" if first else last
