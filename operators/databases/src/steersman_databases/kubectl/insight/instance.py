"""Read-only queries of an instance by psql or mysql in its pod."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.api import MySQLCluster
from steersman_databases.kubectl import shell
from steersman_databases.kubectl.command import CommandContext, OperationRejected
from steersman_databases.kubectl.lookup import find_cluster

T = TypeVar("T")
_TIMEOUT_SECONDS = 30
_DATABASES_TIMEOUT_SECONDS = 120
_PSQL_FLAGS = ("--no-psqlrc", "--quiet", "--tuples-only", "--no-align")
_MYSQL_FLAGS = ("--batch", "--raw", "--skip-column-names")
# An object of a user never takes the place of one of the server's.
PSQL_SETTINGS = (
    "SET client_encoding = 'UTF8'; SET search_path = pg_catalog; SET default_transaction_read_only = on;"
    " SET lock_timeout = '1s'; SET statement_timeout = '20s'; SET jit = off"
)
MYSQL_SETTINGS = (
    "SET SESSION transaction_read_only = 1, lock_wait_timeout = 1, max_execution_time = 20000,"
    " information_schema_stats_expiry = 0, group_concat_max_len = 1000000"
)
# One failing database, such as a damaged one, does not hide the others.
_EACH_DATABASE = """
status=0
for PGDATABASE in "$@"; do export PGDATABASE; {psql} || status=$?; done
exit $status
"""


@dataclass(frozen=True, slots=True)
class Instance:
    """The server of an instance."""

    place: CommandContext
    namespace: str
    pod: str
    is_mysql: bool

    @property
    def name(self) -> str:
        """Name of the instance."""
        return self.pod.removesuffix("-0")

    async def query(self, sql: str) -> str:
        """Run a query and return its output. The database is `postgres` or none.

        Raises:
            OperationRejected: the query failed, or the server did not respond in time.
        """
        command = (
            shell.mysql_arguments([f"--init-command={MYSQL_SETTINGS}", *_MYSQL_FLAGS, "--execute", sql])
            if self.is_mysql
            else shell.psql_arguments("postgres", _psql_arguments(sql))
        )
        done = await self._execute(command, _TIMEOUT_SECONDS)
        if done.returncode:
            raise OperationRejected(failure_of(done))
        return done.stdout

    async def query_databases(self, sql: str, databases: Sequence[str]) -> tuple[list[str], str]:
        """Run a query in databases. One of MySQL covers all of them.

        Return:
            The lines of the output, and the error of databases that are missing in it.

        Raises:
            OperationRejected: the query failed everywhere, or the server did not respond in time.
        """
        if self.is_mysql:
            return (await self.query(sql)).splitlines(), ""
        done = await self._execute(each_database(sql, databases), _DATABASES_TIMEOUT_SECONDS)
        if done.returncode and not done.stdout.strip():
            raise OperationRejected(failure_of(done))
        return done.stdout.splitlines(), failure_of(done) if done.returncode else ""

    async def _execute(self, command: Sequence[str], timeout_seconds: int) -> subprocess.CompletedProcess[str]:
        return await execute(self.place, self.namespace, self.pod, command, timeout_seconds=timeout_seconds)


async def execute(
    place: CommandContext,
    namespace: str,
    pod: str,
    command: Sequence[str],
    *,
    container: str = shell.CONTAINER,
    timeout_seconds: int = _TIMEOUT_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a pod.

    Raises:
        OperationRejected: kubectl is missing, or the command did not end in time.
    """
    arguments = place.kubectl(namespace, "exec", f"--container={container}", pod, "--")
    try:
        return await asyncio.to_thread(
            subprocess.run,
            [*arguments, *command],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=timeout_seconds,
        )
    except FileNotFoundError:
        raise OperationRejected("kubectl is not in PATH") from None
    except subprocess.TimeoutExpired:
        raise OperationRejected(f"{pod.removesuffix('-0')} did not respond in {timeout_seconds} s") from None


async def find_instance(
    place: CommandContext, client: Client, key: ObjectKey, instance: str, *, replica: bool
) -> Instance:
    """Return an instance by its name, the primary, or a replica.

    Raises:
        NotFound: there is no such cluster.
        ConfigurationError: it has no such instance.
        OperationRejected: there is no primary, or no replica, now.
    """
    kind = type(await find_cluster(client, key))
    pod = await shell.member_pod(client, kind, key, instance, replica=replica)
    return Instance(place, key.namespace, pod, kind is MySQLCluster)


def each_database(sql: str, databases: Sequence[str]) -> list[str]:
    """Return the command in the pod that queries each database."""
    # The variable takes any name. As an argument, one with = would be a connection string.
    command = [*shell.psql_arguments("", _psql_arguments(sql))]
    command.remove("--dbname=")
    return ["sh", "-c", _EACH_DATABASE.format(psql=shlex.join(command)), "sh", *databases]


def _psql_arguments(sql: str) -> list[str]:
    return [*_PSQL_FLAGS, "--command", PSQL_SETTINGS, "--command", sql]


def decode(output: str, type_: type[T]) -> T:
    """Decode JSON that a server printed.

    Raises:
        OperationRejected: the output is not of this type.
    """
    try:
        return msgspec.json.decode(output, type=type_)
    except msgspec.DecodeError as error:
        raise OperationRejected(f"the response of the server is not understood: {error}") from None


def failure_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the message of a command that failed."""
    return done.stderr.strip() or f"kubectl exec ended with {done.returncode}"
