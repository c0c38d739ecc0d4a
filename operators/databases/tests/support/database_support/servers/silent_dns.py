"""A network of its own, whose DNS server never answers, and what connecting by names is like there.

Names of `/etc/hosts` resolve all the same. Run as a program, within that network, it starts a server, connects to it
by name while others wait for DNS, and says in JSON what happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from database_support.servers.matrix import like_mysql, postgresqls
from database_support.servers.real_server import RealServer
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredUser
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope

DNS = "127.0.0.53"
FILES = {
    "/etc/resolv.conf": f"nameserver {DNS}\n",
    "/etc/hosts": "127.0.0.1 localhost\n127.0.0.1 elsewhere.example.org\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
HUNG = 24


def run_with_silent_dns(directory: Path, *arguments: str) -> dict[str, Any]:
    """What this program says, run in such a network. The directory is for its files."""
    script = "ip link set lo up\n"
    for number, (path, content) in enumerate(FILES.items()):
        (directory / str(number)).write_text(content)
        script += f"[ ! -e {path} ] || mount --bind {directory / str(number)} {path}\n"
    user = [] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    program = [sys.executable, "-m", "database_support.servers.silent_dns", *arguments]
    done = subprocess.run(
        ["unshare", "--net", "--mount", *user, "sh", "-ec", f'{script}exec "$@"', "sh", *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def connect(server: RealServer, host: str, seconds: float) -> Inspection:
    """Logs in to whoever has this name, and looks at the server."""
    administrator = server.administrator
    reached = DatabaseServer(
        server.sql_engine.name,
        ServerEndpoint(host, server.endpoint.port),
        Login(administrator.username, administrator.password),
        Verification(TLSMode.VERIFY_FULL, (server.log.parent / "cert.pem").read_bytes()),
    )
    sessions = server.sql_engine.connect(reached)
    try:
        user = DesiredUser(administrator.username, administrator.password)
        return await server.sql_engine.inspect(sessions, InspectionScope.of((user,)), seconds)
    finally:
        await sessions.close()


async def connection_error(server: RealServer, host: str, seconds: float) -> str:
    """What is said to whoever connects by this name."""
    try:
        await connect(server, host, seconds)
    except EngineError as error:
        return str(error)
    return "connected"


async def scenario(server: RealServer) -> dict[str, Any]:
    """Many wait for DNS, and others connect by names that it is not asked about."""
    with socket.socket(type=socket.SOCK_DGRAM) as silence:
        silence.setblocking(False)
        silence.bind((DNS, 53))
        hung = [asyncio.create_task(connection_error(server, f"db{number}.example.com", 1)) for number in range(HUNG)]
        await asyncio.get_running_loop().sock_recv(silence, 512)
        known = await connection_error(server, "localhost", 5)
        elsewhere = await connection_error(server, "elsewhere.example.org", 5)
        return {"known": known, "elsewhere": elsewhere, "hung": await asyncio.gather(*hung)}


def main() -> None:
    """The process."""
    engine, loop = sys.argv[1:]
    start = {**postgresqls(), **like_mysql()}[engine]
    with contextmanager(start)() as server, asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        print(json.dumps(runner.run(scenario(server))))  # noqa: T201


if __name__ == "__main__":
    main()
