"""MySQL, and MariaDB where it stands in: one account that may do everything in one database.

The rules that are kept:

- The account `user`@`%` is not locked, has the desired password, which does not expire.
- It holds every privilege on the database, and so on nothing else: `_` and `%`, which in a GRANT stand for any
  character, are escaped.
- The database is made with utf8mb4.

An account that holds rights over the whole server is never touched. What was granted in addition is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from ..errors import AdministratorRejected, InvalidName, SqlFailed
from ..port import Change, Credentials, Desired, Endpoint
from ..work import LoginRejected, Work
from .names import check_names
from .session import LOCKED, Session, account, identifier, open_session

MIGHTY = (
    "Super_priv", "Create_user_priv", "Grant_priv", "File_priv", "Shutdown_priv", "Repl_slave_priv",
    "Insert_priv", "Update_priv", "Delete_priv", "Create_priv", "Drop_priv", "Alter_priv",
)  # fmt: skip
"""Columns of mysql.user: rights with which an account could reach beyond its database."""


class MySQL:
    """The `Engine` for MySQL."""

    name = "mysql"
    port = 3306
    uri_scheme = "mysql"

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
    def _account(self) -> str:
        return account(self.desired.username)

    async def look_and_repair(self) -> None:
        async with self._as_administrator() as session:
            await self._user_exists(session)
            await self._database_exists(session)
            await self._privileges_are_held(session)
            await self._account_opens(session)

    async def _user_exists(self, session: Session) -> None:
        accounts = await session.rows(
            "looking for the user", "SELECT * FROM mysql.user WHERE User = ?", self.desired.username
        )
        if any(found.get(column) == "Y" for found in accounts for column in MIGHTY):
            raise InvalidName(
                "username",
                self.desired.username,
                "the server has a user of this name with rights over the whole server;"
                " choose another username, or revoke these rights",
            )
        if any(found["Host"] == "%" for found in accounts):
            return
        await session.run(
            "creating the user",
            f"CREATE USER IF NOT EXISTS {self._account} {self._identified(session)} PASSWORD EXPIRE NEVER",
        )
        self.changed("UserCreated", f"created user {self.desired.username}")

    async def _database_exists(self, session: Session) -> None:
        found = await session.rows(
            "looking for the database",
            "SELECT SCHEMA_NAME AS name FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?",
            self.desired.database,
        )
        # Some collations take "orders" and "Orders" for the same.
        if any(row["name"] == self.desired.database for row in found):
            return
        await session.run(
            "creating the database",
            f"CREATE DATABASE {identifier(self.desired.database)} CHARACTER SET utf8mb4",
        )
        self.changed("DatabaseCreated", f"created database {self.desired.database}")

    async def _privileges_are_held(self, session: Session) -> None:
        pattern = await self._grant_pattern(session)
        rows = await session.rows(
            "looking at the user's grants",
            "SELECT * FROM mysql.db WHERE User = ? AND Host = '%' AND Db = ?",
            self.desired.username,
            pattern,
        )
        # GRANT ALL sets every column there is, in every version, save the right to pass rights on.
        if any(
            all(value == "Y" for column, value in row.items() if _is_privilege(column))
            for row in rows
            if row["Db"] == pattern
        ):
            return
        await session.run(
            "granting privileges", f"GRANT ALL PRIVILEGES ON {identifier(pattern)}.* TO {self._account}"
        )
        self.changed("GrantsRestored", f"granted ALL on database {self.desired.database} to {self.desired.username}")

    async def _grant_pattern(self, session: Session) -> str:
        """The database's name as GRANT reads it: a pattern, unless partial revokes are on (MySQL only)."""
        rows = await session.rows("looking at the server's settings", "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
        if any(row["Value"] == "ON" for row in rows):
            return self.desired.database
        return "".join("\\" + c if c in "\\_%" else c for c in self.desired.database)

    async def _account_opens(self, session: Session) -> None:
        """Log in as the application; reset what the server's refusal names, each thing once."""
        tried: set[str] = set()
        while True:
            try:
                async with self._session(self.desired.credentials, self.desired.database) as application:
                    # An expired password may still log in, but then do nothing.
                    await application.rows("looking in as the application", "SELECT 1")
                    return
            except LoginRejected as rejected:
                repair = "unlock" if rejected.number in LOCKED else "password"
                if repair in tried:
                    raise SqlFailed(
                        f"logging in as {self.desired.username} after its account was reset",
                        None,
                        f"{rejected}; another account of that name, for a narrower host, may come first",
                    ) from None
                tried.add(repair)
            if repair == "unlock":
                await session.run("unlocking the user", f"ALTER USER {self._account} ACCOUNT UNLOCK")
                self.changed("UserUnlocked", f"unlocked user {self.desired.username}")
            else:
                await session.run(
                    "resetting the user's password",
                    f"ALTER USER {self._account} {self._identified(session)} PASSWORD EXPIRE NEVER",
                )
                self.changed("PasswordReset", f"reset the password of user {self.desired.username}")

    def _identified(self, session: Session) -> str:
        """The IDENTIFIED clause. MySQL masks the password in all its logs, MariaDB gets only the hash."""
        password = self.desired.password
        if session.is_mariadb:
            inner = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
            hashed = hashlib.sha1(inner, usedforsecurity=False).hexdigest().upper()
            return f"IDENTIFIED VIA mysql_native_password USING '*{hashed}'"
        return f"IDENTIFIED WITH caching_sha2_password BY {session.literal(password)}"

    @asynccontextmanager
    async def _as_administrator(self) -> AsyncGenerator[Session]:
        try:
            async with self._session(self.administrator, None) as session:
                yield session
        except LoginRejected:
            raise AdministratorRejected(self.administrator.username) from None

    def _session(self, credentials: Credentials, database: str | None) -> AbstractAsyncContextManager[Session]:
        return open_session(self.endpoint, credentials, database, self.deadline, self.desired.password)


def _is_privilege(column: str) -> bool:
    return column.endswith("_priv") and column != "Grant_priv"
