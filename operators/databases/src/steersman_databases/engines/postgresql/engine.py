"""PostgreSQL: the application's role owns the application's database, and nobody else may connect to it.

The rules that are kept:

- The role may log in, has the desired password, no expiry, and no connection limit of 0.
- The role owns the database, and holds CONNECT, CREATE and TEMPORARY on it itself.
- PUBLIC holds nothing on the database: another tenant of the server cannot even connect.
- Where the schema `public` exists, the role may use it and create in it. An application may drop the schema.

A role that is mightier than an application's has to be (superuser, replication, …) is never touched.

Statements of the administrator run in the maintenance database `postgres`, which no application can write to.
What has to be seen in the application's own database is looked at as the application's role, so that nothing
planted there ever runs with the administrator's rights. The two exceptions, in `ownership`, are plain ALTERs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg import sql

from ..errors import AdministratorRejected, InvalidName, SqlFailed
from ..port import Change, Credentials, Desired, Endpoint
from ..work import LoginRejected, Work
from . import ownership
from .names import check_names
from .session import Session, open_session

MAINTENANCE = "postgres"


class PostgreSQL:
    """The `Engine` for PostgreSQL."""

    name = "postgresql"
    port = 5432
    uri_scheme = "postgresql"

    def check_names(self, database: str, username: str, administrator: str) -> None:
        check_names(database, username, administrator)

    async def ensure(
        self, endpoint: Endpoint, administrator: Credentials, desired: Desired, timeout: float = 30.0
    ) -> tuple[Change, ...]:
        check_names(desired.database, desired.username, administrator.username)
        return await _Work(endpoint, administrator, desired, timeout).settle()


class _Work(Work):
    """One call of `ensure`."""

    @property
    def _database(self) -> sql.Identifier:
        return sql.Identifier(self.desired.database)

    @property
    def _role(self) -> sql.Identifier:
        return sql.Identifier(self.desired.username)

    async def look_and_repair(self) -> None:
        async with self._as_administrator(MAINTENANCE) as session:
            await self._role_exists(session)
            await self._database_exists(session)
            await self._database_is_owned(session)
            await self._database_is_private(session)
            await self._password_opens(session)

    async def _role_exists(self, session: Session) -> None:
        found = await session.rows(
            "looking for the user",
            "SELECT rolsuper OR rolreplication OR rolcreaterole OR rolbypassrls, rolcanlogin,"
            " rolconnlimit = 0, coalesce(rolvaliduntil < 'infinity', false)"
            " FROM pg_catalog.pg_roles WHERE rolname = %s",
            self.desired.username,
        )
        if not found:
            await session.run(
                "creating the user",
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(self._role, self._verifier(session)),
            )
            self.changed("UserCreated", f"created user {self.desired.username}")
            return
        mighty, may_log_in, shut_out, expires = found[0]
        if mighty:
            raise InvalidName(
                "username",
                self.desired.username,
                "the server has a role of this name with rights over the whole server"
                " (SUPERUSER, REPLICATION, CREATEROLE or BYPASSRLS); choose another username,"
                " or take these rights away from the role",
            )
        repairs = [
            clause
            for broken, clause in (
                (not may_log_in, sql.SQL("LOGIN")),
                (shut_out, sql.SQL("CONNECTION LIMIT -1")),
                (expires, sql.SQL("VALID UNTIL 'infinity'")),
            )
            if broken
        ]
        if repairs:
            await session.run(
                "unlocking the user",
                sql.SQL("ALTER ROLE {} {}").format(self._role, sql.SQL(" ").join(repairs)),
            )
            self.changed("UserUnlocked", f"unlocked user {self.desired.username}")

    async def _database_exists(self, session: Session) -> None:
        found = await session.rows(
            "looking for the database",
            "SELECT datistemplate, datallowconn, datconnlimit FROM pg_catalog.pg_database WHERE datname = %s",
            self.desired.database,
        )
        if not found:
            await session.run(
                "creating the database",
                # template0 is the one template that nobody can have put anything into.
                sql.SQL("CREATE DATABASE {} OWNER {} ENCODING 'UTF8' TEMPLATE template0").format(
                    self._database, self._role
                ),
            )
            self.changed("DatabaseCreated", f"created database {self.desired.database}")
            return
        is_template, allows_connections, connection_limit = found[0]
        if is_template:
            raise InvalidName(
                "databaseName", self.desired.database, "it is a template of this server; choose another name"
            )
        if connection_limit == -2:
            raise SqlFailed(
                "looking for the database",
                None,
                "somebody began to drop it and was interrupted, and PostgreSQL opens it no more; "
                "finish with DROP DATABASE, then it is created anew, empty",
            )
        repairs = [
            clause
            for broken, clause in (
                (not allows_connections, sql.SQL("ALLOW_CONNECTIONS true")),
                (connection_limit == 0, sql.SQL("CONNECTION LIMIT -1")),
            )
            if broken
        ]
        if repairs:
            await session.run(
                "opening the database",
                sql.SQL("ALTER DATABASE {} {}").format(self._database, sql.SQL(" ").join(repairs)),
            )
            self.changed("DatabaseOpened", f"opened database {self.desired.database} to connections")

    async def _database_is_owned(self, session: Session) -> None:
        rows = await session.rows(
            "looking for the database's owner",
            "SELECT pg_catalog.pg_get_userbyid(datdba) FROM pg_catalog.pg_database WHERE datname = %s",
            self.desired.database,
        )
        owner = rows[0][0] if rows else self.desired.username
        if owner == self.desired.username:
            return
        # The contents first: as long as the database has the wrong owner, a cut is seen and this starts again.
        async with open_session(self.endpoint, self.administrator, self.desired.database, self.deadline) as inside:
            given = await ownership.give_back(inside, owner, self.desired.username)
        await session.run(
            "restoring the database's owner",
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(self._database, self._role),
        )
        contents = f" and {given} objects in it" if given else ""
        self.changed(
            "OwnerRestored",
            f"gave database {self.desired.database}{contents} back to {self.desired.username} from {owner}",
        )

    async def _database_is_private(self, session: Session) -> None:
        granted = await session.rows(
            "looking at the database's grants",
            "SELECT acl.grantee = 0, acl.privilege_type"
            " FROM pg_catalog.pg_database d, pg_catalog.aclexplode("
            "   coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) acl"
            " WHERE d.datname = %s AND acl.grantee IN (0, d.datdba)",
            self.desired.database,
        )
        own = {privilege for to_public, privilege in granted if not to_public}
        if own < {"CONNECT", "CREATE", "TEMPORARY"}:
            await session.run(
                "restoring grants on the database",
                sql.SQL("GRANT ALL ON DATABASE {} TO {}").format(self._database, self._role),
            )
            self.changed(
                "GrantsRestored", f"granted ALL on database {self.desired.database} to {self.desired.username}"
            )
        if any(to_public for to_public, _ in granted):
            await session.run(
                "closing the database to others",
                sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(self._database),
            )
            self.changed("PublicAccessRevoked", f"closed database {self.desired.database} to other users")

    async def _password_opens(self, session: Session) -> None:
        try:
            state = await self._seen_by_application()
        except LoginRejected:
            await session.run(
                "resetting the user's password",
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(self._role, self._verifier(session)),
            )
            self.changed("PasswordReset", f"reset the password of user {self.desired.username}")
            try:
                state = await self._seen_by_application()
            except LoginRejected as still:
                raise SqlFailed(
                    f"logging in as {self.desired.username} after its password was reset", "28P01", str(still)
                ) from None
        if state.usable:
            return
        if not state.owned:
            async with self._as_administrator(self.desired.database) as inside:
                await ownership.take_public_schema(inside)
        self.changed(
            "GrantsRestored",
            f"granted ALL on schema public of database {self.desired.database} to {self.desired.username}",
        )

    async def _seen_by_application(self) -> ownership.PublicSchema:
        """Log in as the application, and repair what it may repair itself."""
        async with open_session(
            self.endpoint, self.desired.credentials, self.desired.database, self.deadline
        ) as session:
            state = await ownership.public_schema(session)
            if state.owned and not state.usable:
                await ownership.grant_public_schema(session)
            return state

    @asynccontextmanager
    async def _as_administrator(self, database: str) -> AsyncGenerator[Session]:
        try:
            async with open_session(self.endpoint, self.administrator, database, self.deadline) as session:
                yield session
        except LoginRejected:
            raise AdministratorRejected(self.administrator.username) from None

    def _verifier(self, session: Session) -> sql.Literal:
        return sql.Literal(session.verifier(self.desired.username, self.desired.password))
