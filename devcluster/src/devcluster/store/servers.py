"""Processes of an object store: versitygw and toxiproxy."""

import http.client
import os
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import process
from devcluster.errors import NotReady
from devcluster.process import Process
from devcluster.store.directory import StoreDirectory
from devcluster.store.programs import Programs

REGION = "us-east-1"
_HEALTH_PATH = "/healthz"

Launch = Callable[[Sequence[str], Path], Process]
"""Starts a command with its output in a log file."""

# The secret is read from a file, since everyone may read the arguments of a process.
_SERVER_SCRIPT = """
set -eu
volume=$1 environment=$2
shift 2
eval "$PREPARE"
mkdir -p "$volume/objects" "$volume/versions"
set -a
. "$environment"
set +a
exec "$@"
"""
# The parent may end before the kernel knows that its child is to follow it.
_CHILD_SCRIPT = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'
# The kernel regards the thread that starts a process as its parent. This one ends with the interpreter.
_launcher_thread = ThreadPoolExecutor(1, thread_name_prefix="store-launcher")


def launch_detached(command: Sequence[str], log: Path) -> Process:
    """Start a process that outlives this one."""
    return process.start(command, log)


def launch_child(command: Sequence[str], log: Path) -> Process:
    """Start a process that the kernel kills when this one ends.

    The command is one of `follow_parent`.
    """
    return _launcher_thread.submit(process.start, command, log).result()


def follow_parent(command: Sequence[str]) -> list[str]:
    """Return a command line that ends with this process.

    Source: PR_SET_PDEATHSIG in prctl(2).
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _CHILD_SCRIPT, "sh", str(os.getpid()), *command]


def server_command(programs: Programs, directory: StoreDirectory, address: str) -> list[str]:
    """Return versitygw's command line, to be run by `server_script`."""
    pair = directory.server_pair
    return [
        str(programs.versitygw),
        f"--port={address}",
        f"--region={REGION}",
        f"--cert={pair.certificate}",
        f"--key={pair.key}",
        f"--iam-dir={directory.accounts}",
        "--iam-cache-disable",
        f"--health={_HEALTH_PATH}",
        "posix",
        f"--versioning-dir={directory.volume / 'versions'}",
        str(directory.volume / "objects"),
    ]


def server_script(directory: StoreDirectory, command: Sequence[str], prepare: str = "") -> list[str]:
    """Return the command line that gives `command` the root account.

    `command` has the account in its environment. `prepare` is a shell command that runs before it, with the path of
    the volume in `$volume`.
    """
    arguments = [str(directory.volume), str(directory.root_account), *command]
    return ["env", f"PREPARE={prepare}", "sh", "-c", _SERVER_SCRIPT, "sh", *arguments]


def proxy_command(programs: Programs, host: str, port: int) -> list[str]:
    """Return toxiproxy's command line; the arguments are the address of its API."""
    return [str(programs.toxiproxy), f"-host={host}", f"-port={port}"]


def wait_until_ready(server: Process, host: str, port: int, directory: StoreDirectory, seconds: float = 15.0) -> None:
    """Wait until versitygw responds over TLS. Raises NotReady, naming the log."""
    context = ssl.create_default_context(cafile=str(directory.ca_certificate))
    deadline = time.monotonic() + seconds
    while not _is_healthy(host, port, context):
        if not server.alive() or time.monotonic() > deadline:
            raise NotReady(f"the object store does not start; see {directory.log('versitygw')}")
        time.sleep(0.01)


def _is_healthy(host: str, port: int, context: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection(host, port, timeout=5, context=context)
    try:
        connection.request("GET", _HEALTH_PATH)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
