"""Slow statements in the logs of the servers.

Source: PostgreSQL 15 documentation, 20.8 "Error Reporting and Logging"; MySQL 9.7 Reference Manual, "The Slow Query
Log".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from steersman_databases.kubectl.tables import printable

_MOST_LINES = 1000
"""Lines of a statement. More are left out."""
_POSTGRESQL = re.compile(
    r"(?P<time>\S+ \S+ \S+) \[\d+\] sqlstate=\S+ queryid=(?P<query_id>\S+) user=(?P<user>.*?) db=(?P<database>.*?)"
    r" app=(?P<application>.*?) LOG:  duration: (?P<milliseconds>\d+\.\d+) ms  [a-z]+(?: [^:]*)?: (?P<statement>.*)"
)
_MYSQL_TIME = re.compile(r"# Time: (?P<time>\S+)")
_MYSQL_USER = re.compile(r"# User@Host: [^\[]*\[(?P<user>[^\]]*)\] @ ")
_MYSQL_DURATION = re.compile(r"# Query_time: (?P<seconds>\d+\.\d+) ")
_MYSQL_DATABASE = re.compile(r"use (?P<database>.*);")
_MYSQL_TIMESTAMP = re.compile(r"SET timestamp=\d+;")
_MYSQL_ERROR_LOG = re.compile(r"\d{4}-\d\d-\d\dT\S+Z \d+ \[")
"""Begin of a message of the error log.

It may be between two lines of an entry.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStatement:
    """A statement that took longer than the threshold. Unknown values are ""."""

    time: str
    milliseconds: float = 0.0
    user: str = ""
    database: str = ""
    application: str = ""
    query_id: str = ""
    statement: str = ""

    def __str__(self) -> str:
        names = {
            "user": self.user,
            "db": self.database,
            "app": self.application,
            "queryid": "" if self.query_id == "0" else self.query_id,
        }
        origin = " ".join(f"{name}={value}" for name, value in names.items() if value)
        text = " ".join(self.statement.split())
        return printable(f"{self.time}  {self.milliseconds:.1f} ms  {origin}  {text}")


class SlowLog(Protocol):
    """Finds the slow statements in the lines of one server."""

    def feed(self, line: str) -> Iterator[SlowStatement]:
        """Yield the statements that are complete with this line."""
        ...

    def finish(self) -> Iterator[SlowStatement]:
        """Yield the last statement, at the end of the logs."""
        ...


@dataclass(slots=True)
class PostgreSQLSlowLog:
    """A `SlowLog`. A statement is complete when the next message begins: its further lines begin with a tab."""

    _found: SlowStatement | None = None
    _lines: list[str] = field(default_factory=list[str])

    def feed(self, line: str) -> Iterator[SlowStatement]:
        """See `SlowLog.feed`."""
        if self._found is not None and line.startswith("\t"):
            if len(self._lines) < _MOST_LINES:
                self._lines.append(line)
            return
        yield from self.finish()
        if (begun := _POSTGRESQL.fullmatch(line)) is not None:
            values = begun.groupdict()
            self._lines = [values.pop("statement")]
            self._found = SlowStatement(milliseconds=float(values.pop("milliseconds")), **values)

    def finish(self) -> Iterator[SlowStatement]:
        """See `SlowLog.finish`."""
        if self._found is not None:
            yield replace(self._found, statement="\n".join(self._lines))
        self._found = None


@dataclass(slots=True)
class MySQLSlowLog:
    """A `SlowLog`. A statement is complete with a line that ends with a semicolon."""

    _found: SlowStatement | None = None
    _lines: list[str] = field(default_factory=list[str])
    _in_statement: bool = False
    _database: str = ""

    def feed(self, line: str) -> Iterator[SlowStatement]:
        """See `SlowLog.feed`."""
        if (begun := _MYSQL_TIME.fullmatch(line)) is not None:
            self._found, self._lines, self._in_statement = SlowStatement(time=begun["time"]), [], False
        elif self._found is None or _MYSQL_ERROR_LOG.match(line):
            return
        elif self._in_statement:
            if len(self._lines) < _MOST_LINES:
                self._lines.append(line)
            if line.endswith(";"):
                statement = "\n".join(self._lines).removesuffix(";")
                yield replace(self._found, database=self._database, statement=statement)
                self._found = None
        else:
            self._read_header(self._found, line)

    def finish(self) -> Iterator[SlowStatement]:
        """See `SlowLog.finish`."""
        yield from ()

    def _read_header(self, found: SlowStatement, line: str) -> None:
        if (user := _MYSQL_USER.match(line)) is not None:
            self._found = replace(found, user=user["user"])
        elif (duration := _MYSQL_DURATION.match(line)) is not None:
            self._found = replace(found, milliseconds=1000 * float(duration["seconds"]))
        elif (used := _MYSQL_DATABASE.fullmatch(line)) is not None:
            # The server writes only a change.
            self._database = used["database"].strip("`")
        elif _MYSQL_TIMESTAMP.fullmatch(line):
            self._in_statement = True
