"""What the operator asks of a database server, the same for every engine."""

from __future__ import annotations

from typing import Protocol

from .desired import Claim, DesiredDatabase, DesiredUser
from .plan import Change, Plan
from .server import Credentials, Server
from .sessions import Sessions
from .survey import Scope, Survey


class Contents(Protocol):
    """What is inside a server of one engine. Stateless: everything it knows, it asks the server.

    Looking (`survey`), planning (`plan_…`, pure) and doing (`carry_out`) are apart, so that one look serves many
    objects. `settle` does the three for one object, and again where somebody else was at it.
    Every `timeout` is in seconds, for the whole call.
    """

    @property
    def name(self) -> str:
        """The engine's name in `spec.engine`."""
        ...

    @property
    def port(self) -> int:
        """The port its servers listen on."""
        ...

    @property
    def uri_scheme(self) -> str:
        """The scheme of its connection strings."""
        ...

    def second_username(self, username: str) -> str:
        """Who the second credential of a user is for: a role of its own on PostgreSQL, the same account on MySQL."""
        ...

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        """Refuse what no server of this engine could, or must, take. Needs no server.

        Raises `InvalidName` for names and passwords, `NotSupported` for fields that the engine does not have; both
        say which field.
        """
        ...

    def check_name(self, field: str, name: str) -> None:
        """Refuse what can be the name of nothing on any server of this engine: nobody can even look for it.

        Raises `InvalidName`, which says which field.
        """
        ...

    def verifies(self, password: str, verifier: str | None) -> bool:
        """Whether this is the password that a server keeps this verifier of."""
        ...

    def new_verifier(self, password: str) -> str:
        """A verifier of this password, as the engine's servers keep it."""
        ...

    def connect(self, server: Server) -> Sessions:
        """Sessions for a server. Nothing is opened before it is needed; whoever connects closes."""
        ...

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        """Look at what is there of what the scope names.

        Raises `ServerUnreachable`, `AdministratorRejected` or `SqlFailed`.
        """
        ...

    def plan_database(self, survey: Survey, desired: DesiredDatabase) -> Plan:
        """The steps from what is there to what is desired; none when it is so. The survey's scope must hold it.

        Raises `AlreadyExists`, `Claimed`, `NotSupported`, `ImmutableOnServer`, `OwnerMissing`.
        """
        ...

    def plan_user(self, survey: Survey, desired: DesiredUser) -> Plan:
        """As `plan_database`, for a user.

        Raises `AlreadyExists`, `Claimed`, `NotSupported`, `InvalidName`.
        """
        ...

    def plan_drop_database(self, survey: Survey, name: str, claim: Claim | None) -> Plan:
        """The steps that drop a database, a half-made one too; none where it is gone, or another than the claim's."""
        ...

    def plan_drop_user(self, survey: Survey, name: str, claim: Claim | None, heir: str | None) -> Plan:
        """The steps that drop a user and its second credential; none where it is gone, or not the claim's.

        What it owns goes to `heir`; at `None` to the owner of the database in which it lies. An heir whose name can
        be nobody's need not be in the scope.

        The survey's scope must hold it among those who are dropped.

        Raises `StillNeeded` where what it made would be lost and `InvalidName` of the heir, or gives that as the
        plan's failure.
        """
        ...

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        """Do the steps in their order, and say what was changed. May be cut off at any point.

        Steps that copy or go through much may have minutes of their own, beside `timeout`.

        Raises `Raced` (look again), `ServerUnreachable`, `AdministratorRejected` or `SqlFailed`, with what had been
        changed before in `changes`.
        """
        ...

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        """Whether these credentials are taken, by a login to this database. The server is verified as ever.

        Raises `ServerUnreachable` where nobody can know, as with `AccessRefused`, and `SqlFailed` where they were
        taken, but the user may not come in: not into this database, or not at all. As many sessions as there may be
        say nothing against them.
        """
        ...

    async def admits_alike(
        self, sessions: Sessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        """Whether one user may come into this database from wherever the other one may, by the server's access rules.

        Not where that cannot be seen.
        """
        ...
