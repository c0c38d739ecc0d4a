"""Ages of transaction IDs, and holders that prevent their cleanup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

HolderKind = Literal["session", "prepared transaction", "replication slot", "standby"]


@dataclass(frozen=True, slots=True, kw_only=True)
class XminHolder:
    """A holder of an old transaction ID. VACUUM freezes nothing that is newer.

    Attributes:
        name: process ID of a session, otherwise its name.
        age: transactions since its ID.
        seconds: duration of its transaction. None for slots and standbys.
        detail: account, database and application of a session.
        started: identifies the session together with its process ID.
    """

    kind: HolderKind
    name: str
    age: int
    seconds: float | None = None
    detail: str = ""
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionIds:
    """The oldest database of a server.

    Attributes:
        age: transactions since its oldest ID that is not frozen, or multixacts if these are more.
        autovacuum_age: age from which on the server's autovacuum freezes all tables.
        holders: the oldest first.
        vacuuming: table that the operator's vacuum works on, or "".
    """

    database: str
    age: int
    autovacuum_age: int
    holders: Sequence[XminHolder] = ()
    vacuuming: str = ""
