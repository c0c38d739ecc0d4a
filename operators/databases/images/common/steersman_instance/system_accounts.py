"""System accounts of PostgreSQL, restored by the primary's own pod.

The pod logs in over the socket as the first superuser, so it needs none of the accounts. The SQL comes from the
operator by a ConfigMap.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROLES = Path("/etc/steersman/patroni/roles.sql")
CHECK = Path("/etc/steersman/patroni/roles-check.sql")
_CHECK_SECONDS = 10.0
_ENSURE_SECONDS = 60.0
# Settings that users may have made for all sessions and that would prevent the creation of accounts. The SQL itself
# sets those that exist only in some versions.
_PINNED = (
    "-c default_transaction_read_only=off -c statement_timeout=0 -c lock_timeout=0"
    " -c idle_in_transaction_session_timeout=0"
)
_NO_LOGIN_TRIGGERS = " -c event_triggers=off"  # since 17, which introduced both
_CONNECTION_FAILED = 2  # exit code of psql


class AccountsNotRestored(Exception):
    """The server rejected the connection or the SQL. The text is psql's."""


def are_current(check: Path = CHECK) -> bool | None:
    """Return True if the accounts are as the operator declares them.

    None if the server does not accept this connection. A file of an earlier operator is missing.
    """
    if not check.exists():
        return None
    done = _psql("postgres", f"--file={check}", "--tuples-only", "--no-align")
    if done.returncode == _CONNECTION_FAILED and "not currently accepting connections" not in done.stderr:
        return None
    return done.stdout.strip() == "t"


def ensure(roles: Path = ROLES) -> None:
    """Create the accounts, or correct them.

    Raises:
        AccountsNotRestored: it has no effect.
    """
    arguments = ("--set=ON_ERROR_STOP=1", "--output=/dev/null", f"--file={roles}")
    done = _psql("postgres", *arguments, seconds=_ENSURE_SECONDS)
    if done.returncode == _CONNECTION_FAILED:
        # Such a database refuses superusers as well, and with them Patroni.
        _psql("template1", "--command=ALTER DATABASE postgres ALLOW_CONNECTIONS true")
        done = _psql("postgres", *arguments, seconds=_ENSURE_SECONDS)
    if done.returncode:
        raise AccountsNotRestored(" ".join(done.stderr.split()))


def _psql(database: str, *arguments: str, seconds: float = _CHECK_SECONDS) -> subprocess.CompletedProcess[str]:
    command = ["psql", "--no-psqlrc", "--quiet", f"--dbname={database}", *arguments]
    try:
        return subprocess.run(
            command, env=_environment(), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, _CONNECTION_FAILED, "", str(error))


def _environment() -> Mapping[str, str]:
    newest = _NO_LOGIN_TRIGGERS if _major_version() >= 17 else ""
    return {**os.environ, "PGOPTIONS": _PINNED + newest, "PGCONNECT_TIMEOUT": "5"}


@cache
def _major_version() -> int:
    """Return the major version of the image, which is the server's."""
    command: Sequence[str] = ["psql", "--version"]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"\d+", reported)[0])
