"""Real servers on loopback, as processes of an unprivileged user, with their data in a temporary directory.

PostgreSQL and MariaDB come from Debian packages (`make test` installs them), whose services are not used. Where
`STEERSMAN_MYSQL_ROOT` names a root file system with MySQL in it, as the image of this repository has, MySQL
takes part as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncmy
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from psycopg import sql
from steersman_databases.engines import Credentials, Desired, Endpoint, Engine, MySQL, PostgreSQL

NOBODY = 65534
START_SECONDS = 60
ADMINISTRATOR = Credentials("the-administrator", "4dmin-s3cret")
WRITES = re.compile(
    r"(?:statement: |execute [^:]*: |(?:Execute|Query)\t)(?:CREATE|ALTER|DROP|GRANT|REVOKE|INSERT|UPDATE|DELETE)"
)


class Process:
    """A server process of an unprivileged user. It ends with us, however we end."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.log = directory / "output.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*unprivileged(), "--pdeathsig=KILL", *command],
                stdout=log,
                stderr=log,
                cwd=directory,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            )

    def wait_for(self, endpoint: Endpoint) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection((endpoint.host, endpoint.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.log.read_text(errors='replace')}")

    def stop(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def unprivileged() -> list[str]:
    return ["setpriv", *([f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.getuid() == 0 else [])]


def run(command: list[str], directory: Path, stdin: str = "") -> None:
    done = subprocess.run(
        [*unprivileged(), *command],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")


def program(name: str, *places: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((*places, os.environ["PATH"])))
    if found is None:
        raise RuntimeError(f"{name} is missing; on Debian: apt-get install postgresql-15 mariadb-server-core")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def data_directory() -> Generator[Path]:
    # Not pytest's own: nobody else may enter that. In memory where there is room, since each new database of
    # PostgreSQL is three hundred files.
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30
    with tempfile.TemporaryDirectory(
        prefix="steersman-", dir=memory if roomy else None, ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        certify(directory)
        if os.getuid() == 0:
            for path in (directory, *directory.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        yield directory


def certify(directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = directory / "key.pem"
    private.touch(0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class RealServer:
    """What the contract needs that is the same for every real server."""

    engine: Engine

    def __init__(self, endpoint: Endpoint, statements: Path) -> None:
        self.endpoint = endpoint
        self.administrator = ADMINISTRATOR
        self.log = statements
        self._unread = statements.open(errors="replace")
        self._writes = 0

    async def writes(self) -> int:
        """How many statements that change something the server has logged so far."""
        self._writes += len(WRITES.findall(self._unread.read()))
        return self._writes

    def nowhere(self) -> Endpoint:
        return Endpoint("127.0.0.1", free_port())

    @asynccontextmanager
    async def hanging(self) -> AsyncGenerator[Endpoint]:
        """Accepts connections and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield Endpoint("127.0.0.1", listener.getsockname()[1])

    @asynccontextmanager
    async def cut_after(self, messages: int) -> AsyncGenerator[Endpoint]:
        """A way to the server that breaks at the nth message, on all connections together."""
        async with self.forwarding(messages, lambda writer: writer.transport.abort()) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def stalling_after(self, messages: int) -> AsyncGenerator[Endpoint]:
        """A way to the server that lets nothing through any more from the nth message on."""
        async with self.forwarding(messages, lambda _: None) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def forwarding(
        self, messages: int, then: Callable[[asyncio.StreamWriter], None]
    ) -> AsyncGenerator[Endpoint]:
        left = messages
        tasks: set[asyncio.Task[None]] = set()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool) -> None:
            nonlocal left
            while data := await reader.read(65536):
                left -= counted
                if left < 0:
                    then(writer)
                    await asyncio.Event().wait()
                writer.write(data)
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
            for task in (
                asyncio.create_task(forward(reader, back, True)),
                asyncio.create_task(forward(there, writer, False)),
            ):
                tasks.add(task)
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            writers.extend((writer, back))

        writers: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield Endpoint("127.0.0.1", listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.transport.abort()


def compose(statement: str, *names: str) -> sql.Composed:
    return sql.SQL(cast(Any, statement)).format(*map(sql.Identifier, names))


class PostgreSQLServer(RealServer):
    engine = PostgreSQL()

    def __init__(self, endpoint: Endpoint, statements: Path) -> None:
        super().__init__(endpoint, statements)
        self._administration: psycopg.Connection | None = None

    def administer(self, statement: str, *names: str) -> list[Any]:
        """Run a statement as the administrator, on a connection that is kept: a new one takes a process."""
        if self._administration is None:
            self._administration = psycopg.connect(
                host=self.endpoint.host,
                port=self.endpoint.port,
                user=ADMINISTRATOR.username,
                password=ADMINISTRATOR.password,
                dbname="postgres",
                autocommit=True,
            )
        cursor = self._administration.execute(compose(statement, *names))
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        if self._administration is not None:
            self._administration.close()

    async def execute(
        self, statement: str, *names: str, credentials: Credentials = ADMINISTRATOR, database: str = "postgres"
    ) -> list[Any]:
        """Run a statement, its `{}` filled with quoted names."""
        async with await psycopg.AsyncConnection.connect(
            host=self.endpoint.host,
            port=self.endpoint.port,
            user=credentials.username,
            password=credentials.password,
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = await connection.execute(compose(statement, *names))
            return await cursor.fetchall() if cursor.description else []

    async def can_log_in(self, credentials: Credentials, database: str) -> bool:
        try:
            await self.execute("SELECT 1", credentials=credentials, database=database)
        except psycopg.OperationalError:
            return False
        return True

    async def create_table(self, credentials: Credentials, database: str) -> None:
        await self.execute("CREATE TABLE till (coin int)", credentials=credentials, database=database)

    async def reads_table(self, credentials: Credentials, database: str) -> bool:
        try:
            await self.execute("SELECT coin FROM till", credentials=credentials, database=database)
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True

    async def databases(self) -> set[str]:
        return {name for (name,) in self.administer("SELECT datname FROM pg_database")}

    async def users(self) -> set[str]:
        return {name for (name,) in self.administer("SELECT rolname FROM pg_roles")}

    async def drop_user(self, desired: Desired) -> None:
        names = (desired.username, ADMINISTRATOR.username)
        await self.execute("REASSIGN OWNED BY {} TO {}", *names, database=desired.database)
        self.administer("DROP ROLE {}", desired.username)

    async def drop_database(self, desired: Desired) -> None:
        self.administer("DROP DATABASE {} WITH (FORCE)", desired.database)

    async def change_password(self, desired: Desired, password: str) -> None:
        self.administer(f"ALTER ROLE {{}} PASSWORD '{password}'", desired.username)

    async def revoke(self, desired: Desired) -> None:
        self.administer("REVOKE ALL ON DATABASE {} FROM {}", desired.database, desired.username)

    async def lock(self, desired: Desired) -> None:
        self.administer("ALTER ROLE {} NOLOGIN", desired.username)

    async def expire(self, desired: Desired) -> None:
        self.administer("ALTER ROLE {} VALID UNTIL '2001-01-01'", desired.username)

    async def create_mighty_user(self, username: str) -> None:
        self.administer("CREATE ROLE {} SUPERUSER", username)


class MySQLServer(RealServer):
    engine = MySQL()

    async def execute(
        self, statement: str, *names: str, credentials: Credentials = ADMINISTRATOR, database: str | None = None
    ) -> list[Any]:
        """Run a statement, its `{}` filled with quoted names."""
        query = statement.format(*("`" + name.replace("`", "``") + "`" for name in names))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        connect = cast(Any, asyncmy.connect)  # pyright: ignore[reportUnknownMemberType]
        connection = await connect(
            host=self.endpoint.host,
            port=self.endpoint.port,
            user=credentials.username,
            password=credentials.password.encode(),
            database=database,
            ssl=tls,
            autocommit=True,
        )
        try:
            async with await connection.prepare(query) as prepared:
                return list((await prepared.execute()).rows or ())
        finally:
            await connection.ensure_closed()

    async def can_log_in(self, credentials: Credentials, database: str) -> bool:
        try:
            await self.execute("SELECT 1", credentials=credentials, database=database)
        except asyncmy.errors.MySQLError:
            return False
        return True

    async def create_table(self, credentials: Credentials, database: str) -> None:
        await self.execute("CREATE TABLE till (coin int)", credentials=credentials, database=database)

    async def reads_table(self, credentials: Credentials, database: str) -> bool:
        await self.execute("SELECT coin FROM till", credentials=credentials, database=database)
        return True

    async def databases(self) -> set[str]:
        rows = await self.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        return {name for (name,) in rows}

    async def users(self) -> set[str]:
        return {name for (name,) in await self.execute("SELECT User FROM mysql.user")}

    async def drop_user(self, desired: Desired) -> None:
        await self.execute("DROP USER {}@'%'", desired.username)

    async def drop_database(self, desired: Desired) -> None:
        await self.execute("DROP DATABASE {}", desired.database)

    async def change_password(self, desired: Desired, password: str) -> None:
        await self.execute(f"ALTER USER {{}}@'%' IDENTIFIED BY '{password}'", desired.username)

    async def revoke(self, desired: Desired) -> None:
        await self.execute("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {}@'%'", desired.username)

    async def lock(self, desired: Desired) -> None:
        await self.execute("ALTER USER {}@'%' ACCOUNT LOCK", desired.username)

    async def expire(self, desired: Desired) -> None:
        await self.execute("ALTER USER {}@'%' PASSWORD EXPIRE", desired.username)

    async def create_mighty_user(self, username: str) -> None:
        await self.execute("CREATE USER IF NOT EXISTS {}@'10.%'", username)
        await self.execute("GRANT SELECT, INSERT ON *.* TO {}@'10.%'", username)


def start_postgresql() -> Generator[PostgreSQLServer]:
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    places = [str(path) for path in reversed(newest)]
    endpoint = Endpoint("127.0.0.1", free_port())
    with data_directory() as directory:
        data = directory / "data"
        password = directory / "password"
        password.write_text(ADMINISTRATOR.password)
        password.chmod(0o644)
        run(
            [
                program("initdb", *places),
                f"--pgdata={data}",
                f"--username={ADMINISTRATOR.username}",
                f"--pwfile={password}",
                "--encoding=UTF8",
                "--no-sync",
            ],
            directory,
        )
        # TLS only, so that every test shows that it is used.
        (data / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n")
        settings = {
            "port": endpoint.port,
            "listen_addresses": endpoint.host,
            "unix_socket_directories": directory,
            "fsync": "off",
            "ssl": "on",
            "ssl_cert_file": directory / "cert.pem",
            "ssl_key_file": directory / "key.pem",
            "log_statement": "all",
            "shared_buffers": "16MB",
            "max_wal_size": "64MB",
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        process = Process(directory, [program("postgres", *places), f"-D{data}", *options])
        try:
            process.wait_for(endpoint)
            server = PostgreSQLServer(endpoint, process.log)
            asyncio.run(answering(server))
            yield server
            server.close()
        finally:
            process.stop(signal.SIGQUIT)


async def answering(server: PostgreSQLServer) -> None:
    """PostgreSQL accepts connections before it takes them."""
    deadline = time.monotonic() + START_SECONDS
    while not await server.can_log_in(ADMINISTRATOR, "postgres"):
        if time.monotonic() > deadline:
            raise RuntimeError(server.log.read_text(errors="replace"))


MAKE_ADMINISTRATOR = (
    f"CREATE USER `{ADMINISTRATOR.username}`@`%` IDENTIFIED BY '{ADMINISTRATOR.password}';\n"
    f"GRANT ALL ON *.* TO `{ADMINISTRATOR.username}`@`%` WITH GRANT OPTION;\n"
)


def start_mariadb() -> Generator[MySQLServer]:
    # mysql/mysql_system_tables.sql in Debian 12, mariadb/mariadb_system_tables.sql after it
    system = "".join(
        next(Path("/usr/share").glob(f"m*/m*_{name}.sql")).read_text()
        for name in ("system_tables", "system_tables_data")
    )
    with data_directory() as directory:
        program_file = program("mariadbd", "/usr/sbin")
        data = directory / "data"
        data.mkdir(mode=0o777)
        data.chmod(0o777)
        common = [program_file, "--no-defaults", f"--datadir={data}", "--innodb-log-file-size=8M"]
        run(
            [*common, "--bootstrap", "--innodb-flush-method=nosync"],
            directory,
            f"CREATE DATABASE mysql;\nUSE mysql;\n{system}FLUSH PRIVILEGES;\n{MAKE_ADMINISTRATOR}",
        )
        certificate = [f"--ssl-cert={directory}/cert.pem", f"--ssl-key={directory}/key.pem"]
        yield from serve_mysql(directory, [*common, *certificate])


def start_mysql(root: Path) -> Generator[MySQLServer]:
    libraries = f"{root}/usr/lib/x86_64-linux-gnu:{root}/usr/lib/mysql/private"
    with data_directory() as directory:
        setup = directory / "setup.sql"
        setup.write_text(MAKE_ADMINISTRATOR)
        setup.chmod(0o644)
        common = [
            *(f"{root}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries, f"{root}/usr/sbin/mysqld"),
            *("--no-defaults", f"--basedir={root}/usr", f"--lc-messages-dir={root}/usr/share/mysql"),
            *(f"--plugin-dir={root}/usr/lib/mysql/plugin", f"--datadir={directory}/data", "--secure-file-priv=NULL"),
        ]
        run([*common, "--initialize-insecure", f"--init-file={setup}"], directory)
        yield from serve_mysql(directory, [*common, "--mysqlx=OFF"])


def serve_mysql(directory: Path, command: list[str]) -> Generator[MySQLServer]:
    endpoint = Endpoint("127.0.0.1", free_port())
    statements = directory / "statements.log"
    process = Process(
        directory,
        [
            *command,
            f"--port={endpoint.port}",
            f"--bind-address={endpoint.host}",
            f"--socket={directory}/socket",
            f"--pid-file={directory}/pid",
            "--skip-name-resolve",
            "--general-log=1",
            f"--general-log-file={statements}",
            "--innodb-flush-method=nosync",
        ],
    )
    try:
        process.wait_for(endpoint)
        yield MySQLServer(endpoint, statements)
    finally:
        process.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgreSQLServer]:
    yield from start_postgresql()


@pytest.fixture(scope="session")
def mariadb() -> Generator[MySQLServer]:
    yield from start_mariadb()


@pytest.fixture(scope="session")
def mysql() -> Generator[MySQLServer]:
    yield from start_mysql(Path(os.environ["STEERSMAN_MYSQL_ROOT"]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # One worker a server, so that each is started once.
    like_mysql = ["mariadb", *(["mysql"] if "STEERSMAN_MYSQL_ROOT" in os.environ else [])]
    for fixture, names in (("server", ["postgresql", *like_mysql]), ("mysql_server", like_mysql)):
        if fixture in metafunc.fixturenames:
            params = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]
            metafunc.parametrize(fixture, params, indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> RealServer:
    return request.getfixturevalue(request.param)


@pytest.fixture
def mysql_server(request: pytest.FixtureRequest) -> MySQLServer:
    return request.getfixturevalue(request.param)
