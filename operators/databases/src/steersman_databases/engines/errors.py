"""What can go wrong between the operator and a database server.

```
EngineError
├── InvalidName            the spec asks for something that can never be; retrying is of no use
├── NotSupported           this engine, or this version of the server, does not have what the spec asks for
├── NotPermitted           a guest asks for what is not its namespace's to have
├── AlreadyExists          something of this name is there, and nobody's who may be asked
├── Claimed                another object has this name on the server
├── ImmutableOnServer      it is there, otherwise, and cannot be changed
├── ExtensionUnavailable   the server has no such extension, or not in this version
├── OwnerMissing           the role that is to own something is not there
├── StillNeeded            a user is not dropped: what it made would be lost
│   ├── HeirMissing        there is nobody to give what it owns to
│   └── DefinerNeeded      something stored acts as it, and fails without it
├── ObjectsMissing         all is done but what waits for objects that are not there yet
├── Raced                  somebody else was at it at the same time: look again
├── UnknownEngine          no such engine
├── UnsupportedVersion     the engine exists, this version of it does not
├── ServerUnreachable      no connection, no answer in time, starting, stopping: try again later
│   ├── AccessRefused      its access rules do not let this user in from here, whatever the password
│   ├── CertificateRefused one of the two does not take the other's certificate
│   ├── LimitReached       the password is right, and as many use it, or the server, as may
│   └── RoleMissing        who logs in without a password is not there, or not yet
├── AdministratorRejected  the server answers, but does not take the administrator's credentials
└── SqlFailed              the server refused a statement
    └── StillGranted       what somebody has of a former database would open the next of its name
```

No message, attribute or chained exception holds a password: they end in Events, conditions and logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .desired import Claim
    from .plan import Change
    from .server import Endpoint


class EngineError(Exception):
    """Base of all errors here.

    `changes` holds what had been changed on the server before the error, so that it can still be reported.
    `next_step` is what to do about it, where that is other than for most errors of its reason; "" where the message
    says it already.
    """

    changes: tuple[Change, ...] = ()
    next_step: ClassVar[str | None] = None


class InvalidName(EngineError):
    """A database name, a username or a password that the engine cannot or must not use.

    `field` is the field as the user wrote it (`databaseName`, `username`, `password`), `reason` says what is
    wrong and what to do instead.
    """

    next_step = ""

    def __init__(self, field: str, value: str, reason: str) -> None:
        shown = f'{field} "{value}"' if field != "password" else "the password"
        super().__init__(f"{shown} cannot be used: {reason}")
        self.field = field
        self.reason = reason


class NotPermitted(EngineError):
    """A guest on the server asks for what is not its own namespace's to have."""

    def __init__(self, what: str, name: str, reason: str = "is not declared in this namespace") -> None:
        super().__init__(f"{what} {name} {reason}")


class NotSupported(EngineError):
    """The engine, or this version of the server, does not have what a field asks for."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} cannot be used: {reason}")
        self.field = field
        self.reason = reason


class AlreadyExists(EngineError):
    """Something of this name is on the server, and nothing says that it is ours."""

    next_step = ""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {name} is on the server already and was not made by this object:"
            " set spec.adopt to true to take it over, or choose another name"
        )


class Claimed(EngineError):
    """Something on the server bears another object's mark. `owner` is that mark."""

    next_step = ""

    def __init__(self, what: str, name: str, owner: Claim) -> None:
        super().__init__(f"{what} {name} on the server belongs to another object: choose another name")
        self.owner = owner


class ImmutableOnServer(EngineError):
    """It is there, but made otherwise than declared, and the server cannot change it."""

    next_step = ""

    def __init__(self, field: str, found: str, wanted: str) -> None:
        super().__init__(
            f'{field} is "{found}" on the server and "{wanted}" in the spec, and cannot be changed there:'
            " declare what is there, or make a new database and copy the data"
        )
        self.field = field


class ExtensionUnavailable(EngineError):
    """The server's image has no such extension, or not in this version."""

    def __init__(self, name: str, version: str | None, versions: Iterable[str]) -> None:
        known = f"; it has {_either(versions)}" if versions else ""
        super().__init__(f"the server has no extension {name}{f' {version}' if version else ''}{known}")


class OwnerMissing(EngineError):
    """The role that is to own something is not on the server."""

    next_step = ""

    def __init__(self, owner: str) -> None:
        super().__init__(f"the owner {owner} is not on the server: declare it as a DatabaseUser, or name another")
        self.owner = owner


_NAMED = 3


class StillNeeded(EngineError):
    """A user is not dropped: what it made would be lost. `cause` says so without what to do about it."""

    next_step = ""

    def __init__(self, cause: str, step: str) -> None:
        self.cause = cause
        super().__init__(f"{cause}: {step}")


class HeirMissing(StillNeeded):
    """A user owns things, and there is nobody to give them to."""

    def __init__(self, user: str, database: str, reason: str) -> None:
        cause = f"{user} owns things in database {database} and {reason}"
        super().__init__(cause, "name in spec.reassignTo who shall have them")


class DefinerNeeded(StillNeeded):
    """Views or stored programs act as a user, and fail without it. `acting` are they: `view shop.sums`, …"""

    def __init__(self, user: str, acting: Sequence[str]) -> None:
        more = len(acting) - _NAMED
        named = [*acting[:_NAMED], *([f"{more} more"] if more > 0 else [])]
        listed = " and ".join(part for part in (", ".join(named[:-1]), named[-1]) if part)
        super().__init__(f"{user} is the definer of {listed}", "give each another definer, or drop it")


class ObjectsMissing(EngineError):
    """What is declared could be done but for this. `missing` are sentence parts."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__("; ".join(missing))
        self.missing = missing


class Raced(EngineError):
    """The server's state changed under our hands: no error, but a reason to look again."""

    next_step = ""

    def __init__(self, failure: SqlFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class UnknownEngine(EngineError):
    """There is no engine of this name."""

    next_step = ""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f'engine "{name}" is unknown: use {_either(known)}')
        self.name = name


class UnsupportedVersion(EngineError):
    """The engine is known, but not in this version."""

    next_step = ""

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


class AccessRefused(ServerUnreachable):
    """The server's access rules do not let a user in by a password, or not from here; it was not looked at."""

    next_step = (
        "let this user in by scram-sha-256 from where the operator runs, in postgresql.pgHba of a cluster, or in"
        " pg_hba.conf of another server; one whose password is rotated has two names, and +name there is both"
    )


class CertificateRefused(ServerUnreachable):
    """TLS fails: the server or the operator does not take the other's certificate."""

    next_step = (
        "see that each knows who signed the other's certificate, which must be valid and name the host that is asked;"
        " where a cluster's own authority was lost, its servers know the new one within three minutes"
    )


class LimitReached(ServerUnreachable):
    """The server has taken the password, but nobody more may come in, or ask, for now."""

    next_step = "end sessions, or raise the limit that its words name"


class RoleMissing(ServerUnreachable):
    """Who logs in is not there, as is said where no password is asked for. A cluster's own are about to be made."""

    next_step = "make the role; those of a cluster's own are made by its operator"


class AdministratorRejected(EngineError):
    """The server does not accept the administrator's username and password; `words` are the server's."""

    def __init__(self, username: str, words: str) -> None:
        super().__init__(f'the server rejected the administrator "{username}": {words}')
        self.username = username


class LoginRejected(Exception):
    """The server does not let this user in. `number` is MySQL's error number, which tells why."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


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

    @classmethod
    def of(cls, failures: Sequence[SqlFailed]) -> SqlFailed:
        """The first of several, in whose words are all of them."""
        first = failures[0]
        first.args = ("; ".join(map(str, failures)),)
        return first


class StillGranted(SqlFailed):
    """What somebody was granted on a former database cannot be taken away, and would open the next of its name; or
    what everybody was granted on one that is there."""

    next_step = (
        "revoke it by hand, where it is a row of mysql.db without a user by DELETE and FLUSH PRIVILEGES; or give the"
        " administrator the same"
    )


def _either(names: Iterable[str]) -> str:
    return " or ".join(f'"{name}"' for name in sorted(names))
