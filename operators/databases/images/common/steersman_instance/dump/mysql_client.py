"""MySQL's client programs: queries, dumps and restores of one database.

They also work with MariaDB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import replace_file
from .processes import ClientProgram
from .server import Login, ServerAddress

MARKER = "steersman_restore"
"""Table of a restore that has not ended."""
# The client verifies only with an authority. It has no mode without TLS that protects the password.
_SSL_MODES = {"VerifyFull": "VERIFY_IDENTITY", "VerifyCA": "VERIFY_CA", "Require": "REQUIRED", "Disable": "REQUIRED"}
_ERRORS = ("ERROR ", "error:", "Got error", "Couldn't")
_VERSION = re.compile(r"^(\d+)\.(\d+)\.(\d+)")
_STATE = "SELECT JSON_ARRAY(VERSION())"
_CONTENT = """
SELECT JSON_ARRAY(TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
UNION ALL SELECT JSON_ARRAY(ROUTINE_NAME) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()
UNION ALL SELECT JSON_ARRAY(EVENT_NAME) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()
"""
# A grant on a database may have a pattern, in which these characters are escaped.
_DATABASE = "TABLE_SCHEMA IN (DATABASE(), REPLACE(REPLACE(DATABASE(), '_', '\\\\_'), '%', '\\\\%'))"
_GRANTS = f"""
SELECT JSON_ARRAY(GRANTEE, PRIVILEGE_TYPE, '', '', IS_GRANTABLE = 'YES')
    FROM information_schema.SCHEMA_PRIVILEGES WHERE {_DATABASE}
UNION ALL SELECT JSON_ARRAY(GRANTEE, PRIVILEGE_TYPE, TABLE_NAME, '', IS_GRANTABLE = 'YES')
    FROM information_schema.TABLE_PRIVILEGES WHERE {_DATABASE}
UNION ALL SELECT JSON_ARRAY(GRANTEE, PRIVILEGE_TYPE, TABLE_NAME, COLUMN_NAME, IS_GRANTABLE = 'YES')
    FROM information_schema.COLUMN_PRIVILEGES WHERE {_DATABASE}
"""  # noqa: S608 - a constant
_ACCOUNTS = "SELECT JSON_ARRAY(User, Host) FROM mysql.user"
_SYSTEM_ACCOUNTS = ("mysql.", "mariadb.", "steersman")


@dataclass(frozen=True, slots=True)
class MysqlGrant:
    """A privilege on the database, a table or a column.

    Args:
        account: user and host.
        option: with grant option.
    """

    account: tuple[str, str]
    privilege: str
    table: str = ""
    column: str = ""
    option: bool = False


class MysqlClient:
    """Client programs as one account.

    Args:
        run: directory for the file with the password.
    """

    def __init__(self, server: ServerAddress, login: Login, run: Path, environment: dict[str, str]) -> None:
        self.server, self.login = server, login
        self._environment = environment
        self._options = run / f"client-{login.username.encode().hex()[:64]}.cnf"
        replace_file(self._options, _option_file(server, login))

    def version(self) -> str:
        """Connect and return the server's version. Raises ClientFailed."""
        return str(self.rows(_STATE)[0][0])

    def objects(self) -> list[str]:
        """Return the names of all objects in the database. Raises ClientFailed."""
        return [str(name) for (name,) in self.rows(_CONTENT)]

    def grants(self) -> list[MysqlGrant]:
        """Return the privileges on the database. Raises ClientFailed."""
        found = [
            MysqlGrant(_account(str(grantee)), str(privilege), str(table), str(column), bool(option))
            for grantee, privilege, table, column, option in self.rows(_GRANTS)
        ]
        return [each for each in found if not each.account[0].startswith(_SYSTEM_ACCOUNTS)]

    def account_names(self) -> set[tuple[str, str]]:
        """Return user and host of all accounts. Raises ClientFailed."""
        return {(str(user), str(host)) for user, host in self.rows(_ACCOUNTS)}

    def dump(self, *more: str) -> ClientProgram:
        """Return mysqldump of the database, as of one moment of InnoDB's tables.

        Args:
            more: options.
        """
        options = (
            *("--single-transaction", "--quick", "--no-tablespaces", "--set-gtid-purged=OFF"),
            *("--column-statistics=0", "--routines", "--events", "--triggers", "--hex-blob"),
            *("--skip-dump-date", "--default-character-set=utf8mb4", *more, "--", self.server.database),
        )
        return ClientProgram(("mysqldump", self._defaults, *options), self._environment, _ERRORS)

    def script(self, *, stop: bool = True) -> ClientProgram:
        """Return mysql, which runs SQL of its input in the database.

        Args:
            stop: at the first error.
        """
        # In this mode, text of a dump is never a command of the client.
        options = ("--binary-mode", "--batch", "--raw", "--skip-column-names", *(() if stop else ("--force",)))
        charset = "--default-character-set=utf8mb4"
        command = ("mysql", self._defaults, *options, charset, f"--database={self.server.database}")
        return ClientProgram(command, self._environment, _ERRORS)

    @property
    def _defaults(self) -> str:
        return f"--defaults-file={self._options}"

    def rows(self, sql: str) -> list[Any]:
        """Run a query whose rows are JSON, and return them. Raises ClientFailed."""
        return [json.loads(line) for line in self.script().run(f"{sql};\n").splitlines() if line]


def is_mariadb(version: str) -> bool:
    """Return True if a version is MariaDB's."""
    return "mariadb" in version.lower()


def version_number(version: str) -> tuple[int, int]:
    """Return major and minor version, without the prefix of MariaDB's compatibility."""
    found = _VERSION.match(version.removeprefix("5.5.5-"))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def quoted(name: str) -> str:
    """Return a name as a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted_account(account: tuple[str, str]) -> str:
    """Return an account for SQL."""
    return "@".join(quoted(part) for part in account)


def grants_document(found: Sequence[MysqlGrant]) -> list[list[object]]:
    """Return grants for the header of a dump."""
    return [[*each.account, each.privilege, each.table, each.column, each.option] for each in found]


def parse_grants(found: Any) -> list[MysqlGrant]:
    """Parse the grants of a dump's header. Raises ValueError."""
    try:
        return [
            MysqlGrant((str(user), str(host)), str(privilege), str(table), str(column), bool(option))
            for user, host, privilege, table, column, option in found
        ]
    except TypeError as error:
        raise ValueError(f"the grants of the dump are malformed: {error}") from None


def _account(grantee: str) -> tuple[str, str]:
    """Split ``'user'@'host'``. Its parts are not escaped."""
    user, _, host = grantee.rpartition("@")
    return user[1:-1], host[1:-1]


def _option_file(server: ServerAddress, login: Login) -> str:
    options = {
        "user": login.username,
        "password": login.password,
        "host": server.host,
        "port": str(server.port),
        "protocol": "TCP",
        "ssl-mode": _SSL_MODES[server.tls],
    }
    if server.tls in ("VerifyFull", "VerifyCA"):
        options["ssl-ca"] = str(server.authorities)
    if login.certificate:
        options |= {"ssl-cert": str(server.files / "tls.crt"), "ssl-key": str(server.files / "tls.key")}
    if not login.password:
        del options["password"]
    lines = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in options.items()]
    return "\n".join(("[client]", *lines, ""))


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})
