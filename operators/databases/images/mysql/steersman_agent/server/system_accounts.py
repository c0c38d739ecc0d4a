"""Accounts of the members and the operator, restored from the pod.

A starting server runs the SQL as its init file, which needs no account and precedes all connections. On a serving
primary it runs over the agent's kept connection, whose privileges outlive its account, and reaches the group. It runs
there once after each start, since members may apply an earlier DROP USER after their own init files.

Source: MySQL 9.7 Reference Manual, "When Privilege Changes Take Effect", `init_file`.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..group.group_status import LocalServer, ServerQueryFailed

LOGIN_REFUSED = frozenset({1045, 1524, 1698, 1820, 1862, 3118})
"""Error numbers for an account that is missing, locked, expired or changed."""
_CHECK_INTERVAL_SECONDS = 10.0
_AGENT = "root@localhost"
_LOCAL = "REQUIRE NONE PASSWORD EXPIRE NEVER ACCOUNT UNLOCK"
_USABLE_QUERY = """
    SELECT CONCAT(u.User, '@', u.Host) FROM mysql.user u
    WHERE u.account_locked = 'N' AND u.password_expired = 'N'
        AND u.plugin = IF(u.Host = 'localhost', 'auth_socket', 'caching_sha2_password')
        AND (u.Super_priv = 'Y' OR u.User NOT IN ('root', 'steersman_superuser'))
        AND (u.User IN ('steersman_monitor', 'steersman_queries') OR EXISTS (
            SELECT 1 FROM mysql.global_grants g WHERE g.USER = u.User AND g.HOST = u.Host))
"""
"""Accounts that can log in and have some of their privileges. The operator corrects the others."""


def write_init_file(file: Path, accounts: Path) -> None:
    """Write the SQL of a start. The binary log stays the group's."""
    statements = [*_agent_statements(), *_with_cleanup(_statements(accounts))]
    file.write_text("".join(f"{each};\n" for each in ("SET SESSION sql_log_bin = OFF", *statements)))


@dataclass
class SystemAccounts:
    """Accounts on the server of this pod. `accounts` is the operator's SQL that creates them."""

    local: LocalServer
    accounts: Path
    _checked_at: float | None = None
    _is_replicated: bool = False

    def record_start(self) -> None:
        """Record a start, whose init file has created the accounts.

        The init file is not in the binary log.
        """
        self._checked_at, self._is_replicated = None, False

    def are_usable(self) -> bool:
        """Return True if all accounts exist and can log in.

        Raises:
            ServerQueryFailed: the server did not respond.
            OSError: the SQL is unreadable.
        """
        return self._has_all(_statements(self.accounts))

    def restore(self, *, is_group_complete: bool = False) -> bool | None:
        """Recreate missing and unusable accounts on a serving primary.

        Once after a start it recreates all of them, as soon as all members are online. A write during a join could
        wait, and a primary whose status is old looks lost to the joining member.

        Return True if there were any, and None if it is not due.

        Raises:
            ServerQueryFailed: the server rejected a statement and lacks accounts, or did not respond.
            OSError: the SQL is unreadable.
        """
        now = time.monotonic()
        if self._checked_at is not None and now < self._checked_at + _CHECK_INTERVAL_SECONDS:
            return None
        self._checked_at = now
        statements = _statements(self.accounts)
        has_all = self._has_all(statements)
        if has_all and (self._is_replicated or not is_group_complete):
            return False
        failure: ServerQueryFailed | None = None
        # Tables that a dump has overwritten count from then on, on replicas, too.
        for each in ("FLUSH PRIVILEGES", *_agent_statements(), *_with_cleanup(statements)):
            try:
                self.local.kept_rows(each)
            except ServerQueryFailed as error:
                if not error.has_responded:
                    raise
                failure = failure or error
        # Password validation rejects statements that change nothing: accounts that exist are no failure.
        if failure is not None and not has_all:
            raise failure
        self._is_replicated = True
        return not has_all

    def _has_all(self, statements: Iterable[str]) -> bool:
        expected = {_AGENT, *(f"{name}@%" for each in statements for name in _created_account(each))}
        return expected <= {str(name) for (name,) in self.local.kept_rows(_USABLE_QUERY)}


def _agent_statements() -> Sequence[str]:
    name = pwd.getpwuid(os.getuid()).pw_name
    authentication = f"IDENTIFIED WITH auth_socket AS '{name}'"
    missing_plugin = "NOT EXISTS (SELECT 1 FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'auth_socket')"
    return (
        # INSTALL PLUGIN of an installed one is an error, after which an init file ends.
        *_conditional(missing_plugin, "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'"),
        *_cleanup("root", "localhost"),
        f"CREATE USER IF NOT EXISTS {_AGENT} {authentication}",
        f"ALTER USER {_AGENT} {authentication} {_LOCAL}",
        f"GRANT ALL ON *.* TO {_AGENT} WITH GRANT OPTION",
    )


def _statements(accounts: Path) -> Sequence[str]:
    if not accounts.exists():  # A server must start without it.
        return ()
    return [each for each in accounts.read_text().split(";\n") if each.strip()]


def _with_cleanup(statements: Iterable[str]) -> Iterator[str]:
    for each in statements:
        for name in _created_account(each):
            yield from _cleanup(name, "%")
        yield each


def _cleanup(name: str, host: str) -> Sequence[str]:
    """Drop leftovers of a missing account in other grant tables.

    CREATE USER IF NOT EXISTS would take them for the account.
    """
    missing = f"NOT EXISTS (SELECT 1 FROM mysql.user WHERE User = '{name}' AND Host = '{host}')"  # noqa: S608
    return _conditional(missing, f"DROP USER IF EXISTS `{name}`@`{host}`")


def _conditional(condition: str, statement: str) -> Sequence[str]:
    quoted = statement.replace("'", "''")
    return (
        f"SET @statement = (SELECT IF({condition}, '{quoted}', 'DO 0'))",
        "PREPARE statement FROM @statement",
        "EXECUTE statement",
    )


def _created_account(statement: str) -> Sequence[str]:
    return re.findall(r"^CREATE USER IF NOT EXISTS `(\w+)`@`%`", statement)
