"""Interface of a database server that every engine implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from steersman_databases.engines.connection.pool import ServerSessions

from ..server import DatabaseServer, SqlCredentials
from .desired import DesiredDatabase, DesiredUser, OwnershipMark
from .inspection import Inspection, InspectionScope
from .sql_plan import SqlChange, SqlPlan


class SqlEngine(Protocol):
    """Inspects, plans and changes the contents of servers of one engine. It is stateless.

    Inspection (`inspect`), planning (`plan_…`, pure) and execution (`execute`) are separate, so that one inspection
    serves many objects. `reconcile` runs the three for one object and repeats after a concurrent change.
    Every `timeout` is in seconds and limits the whole call.
    """

    @property
    def name(self) -> str:
        """Name of the engine in `spec.engine`."""
        ...

    @property
    def port(self) -> int:
        """Default port of its servers."""
        ...

    @property
    def uri_scheme(self) -> str:
        """Scheme of its connection strings."""
        ...

    def rotation_username(self, username: str) -> str:
        """User of the second credential.

        It is a role of its own on PostgreSQL, and the same account on MySQL.
        """
        ...

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        """Reject values that no server of this engine accepts. Needs no server.

        Raises:
            InvalidName: a name or password; the error names the field.
            NotSupported: the engine does not have this field.
        """
        ...

    def check_name(self, field: str, name: str) -> None:
        """Reject a name that cannot exist on any server of this engine.

        Raises:
            InvalidName: names the field.
        """
        ...

    def verifies(self, password: str, verifier: str | None) -> bool:
        """Return True if the verifier belongs to this password."""
        ...

    def is_expensive(self, verifier: str) -> bool:
        """Return True if `verifies` takes longer than for a verifier of `new_verifier`."""
        ...

    def new_verifier(self, password: str) -> str:
        """Create a verifier of this password in the servers' format."""
        ...

    def connect(self, server: DatabaseServer) -> ServerSessions:
        """Sessions for a server. Connections are opened on first use; the caller closes them."""
        ...

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        """Inspect the objects in the scope.

        Raises:
            ServerUnreachable: the server did not respond in time.
            AdministratorRejected: the login failed.
            SqlFailed: a statement failed.
        """
        ...

    async def write_counters(self, sessions: ServerSessions, timeout: float = 15.0) -> Mapping[str, int]:
        """Return a number per database that changes with its writes.

        It also changes with roles. Empty if the contents of databases need no connection of their own.

        Raises:
            EngineError: as `inspect`.
        """
        ...

    def plan_database(self, inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
        """Steps from the inspected to the desired state. The scope of the inspection must contain the database.

        Raises:
            AlreadyExists: an unmarked database has the name.
            OwnedByAnother: another object owns the database.
            NotSupported: the server does not support a field.
            ImmutableProperty: a property cannot be changed.
            OwnerMissing: the owner does not exist.
        """
        ...

    def plan_user(self, inspection: Inspection, desired: DesiredUser) -> SqlPlan:
        """Steps from the inspected to the desired state of a user.

        See `plan_database`.

        Raises:
            AlreadyExists: an unmarked user has the name.
            OwnedByAnother: another object owns the user.
            NotSupported: the server does not support a field.
            InvalidName: the name cannot be used on this server.
        """
        ...

    def plan_drop_database(self, inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
        """Steps that drop a database, an incomplete one included. Empty if it is absent or bears another mark."""
        ...

    def plan_drop_user(
        self, inspection: Inspection, name: str, mark: OwnershipMark | None, new_owner: str | None
    ) -> SqlPlan:
        """Steps that drop a user and its second credential. Empty if it is absent or bears another mark.

        Its objects go to `new_owner`, which defaults to the owner of their database. The scope of the inspection
        must
        contain the user among those to drop. A new owner with an invalid name may be absent from the scope.

        Raises:
            StillNeeded: its objects would be lost. It may be the plan's failure instead.
            InvalidName: the new owner's name is invalid. It may be the plan's failure instead.
        """
        ...

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        """Execute the steps in order and return the changes. Cancellation is safe at any point.

        Steps that copy or scan much data may have minutes of their own in addition to `timeout`.

        Raises:
            ConcurrentChange: inspect again.
            EngineError: `ServerUnreachable`, `AdministratorRejected` or `SqlFailed`; `changes` are those made
                before.
        """
        ...

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        """Return True if a login to this database accepts these credentials. TLS is verified as usual.

        Raises:
            ServerUnreachable: the result is unknown, also for `AccessRefused`.
            SqlFailed: the credentials are valid, but the user may not connect. A connection limit that is reached
                does
                not count.
        """
        ...

    async def same_hba_access(
        self, sessions: ServerSessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        """Return True if access rules treat both users the same.

        One user may connect from wherever the other may. Returns False if the rules cannot be read.
        """
        ...
