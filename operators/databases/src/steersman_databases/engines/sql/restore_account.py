"""Account of a ``Restore``, which can write only the copy.

The copied data may contain functions of users, which run while the copy is loaded. So the Job never has the login of
a superuser. The operator creates the account, gives the copy to its owner at the end, and drops the account. The
account is also the mark of an unfinished copy: whatever it owns belongs to this ``Restore``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import DatabaseServer, SqlCredentials

MAX_NAME_BYTES = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """The place of a copy.

    Args:
        account: writes the copy.
        database: the present database.
        into: the new schema or database.
        is_schema: True if `into` is a schema of `database`.
        comment: describes the copy.
        tables: schema and name of each copied table. The schema is "" on MySQL.
    """

    account: SqlCredentials
    database: str
    into: str
    is_schema: bool
    comment: str = ""
    tables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """A copy that belongs to its owner.

    Args:
        owner: "" on MySQL.
        exists: for each copied table, True if the present database has a table of its name.
    """

    owner: str = ""
    exists: tuple[bool, ...] = ()


class CopyNameTaken(EngineError):
    """The name of the copy is taken."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name} exists already and does not belong to this Restore")


class CopyDatabaseMissing(EngineError):
    """The database for the new schema does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"database {name} does not exist in the cluster")


PrepareCopy = Callable[[DatabaseServer, CopyTarget], Awaitable[None]]
"""Create the account. Raises CopyNameTaken, CopyDatabaseMissing, EngineError."""
FinishCopy = Callable[[DatabaseServer, CopyTarget, str], Awaitable[CopyOutcome]]
"""Give the copy to its owner and drop the account.

The last argument is the owner if the present database does not exist.
"""
DiscardCopy = Callable[[DatabaseServer, CopyTarget], Awaitable[None]]
"""Drop the account and whatever it owns. Does nothing without the account."""


@dataclass(frozen=True, slots=True)
class CopyServer:
    """Operations of an engine for copies. Each may be repeated after an interruption."""

    prepare: PrepareCopy
    finish: FinishCopy
    discard: DiscardCopy
