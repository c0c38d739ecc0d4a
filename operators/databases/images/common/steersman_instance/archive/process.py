"""Runs a program of the archive with a deadline."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

from ..paths import PATHS, InstancePaths
from .errors import ArchiveError, classify, describe
from .pgbackrest import STANZA, configuration_file, write_configuration
from .pod_identity import require_pod_identity
from .store_file import Store

MAX_OUTPUT_BYTES = 32 << 20
CONNECT_SECONDS = 2.0
_POLL_SECONDS = 0.25
_END_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended. ``code`` is None where it was ended by its deadline or by ``give_up``."""

    code: int | None
    output: str
    errors: str


def run_program(
    command: Sequence[str],
    seconds: float,
    give_up: Callable[[], bool] | None = None,
    output: IO[bytes] | None = None,
    content: IO[bytes] | None = None,
) -> Completed:
    """Run a program and end it with its children after a deadline.

    Args:
        seconds: of the monotonic clock.
        give_up: evaluated four times a second; the program is ended as soon as it returns True.
        output: receives the standard output, which is then not in the result.
        content: the standard input. Defaults to nothing.
    """
    # Files and not pipes: a child that outlives its parent would keep a pipe open.
    with tempfile.TemporaryFile() as captured, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            list(command),
            stdin=content or subprocess.DEVNULL,
            stdout=output or captured,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = _wait(process, time.monotonic() + seconds, give_up)
        finally:
            _end(process)
        return Completed(code, _content(captured), _content(errors))


def run_pgbackrest(
    store: Store,
    command: str,
    *arguments: str,
    seconds: float,
    options: Sequence[str] = (),
    give_up: Callable[[], bool] | None = None,
    content: IO[bytes] | None = None,
    paths: InstancePaths = PATHS,
) -> str:
    """Run a command of pgBackRest with the rendered configuration. Return its standard output.

    Args:
        command: such as ``archive-push``.
        options: such as ``--output=json``; none of them may be a secret.
        content: the standard input. Defaults to nothing.

    Raises:
        ArchiveError: it failed, or the deadline passed.
    """
    require_pod_identity(store)
    write_configuration(store, paths)
    config = ["--config", str(configuration_file(paths)), f"--stanza={STANZA}"]
    done = run_program(["pgbackrest", *config, *options, command, *arguments], seconds, give_up, content=content)
    if done.code is None:
        reason = "StoreUnresponsive" if accepts_connections(store, give_up) else "StoreUnreachable"
        raise ArchiveError(reason, describe(store, reason))
    if done.code:
        raise classify(store, done.code, done.output + done.errors)
    return done.output


def accepts_connections(store: Store, give_up: Callable[[], bool] | None = None) -> bool:
    """Return True if the store's port accepts a connection.

    pgBackRest retries rejected connections beyond every deadline.
    """
    accepted: list[bool] = []
    # A thread, since a resolver without a DNS server blocks for longer than a server may take to stop.
    thread = threading.Thread(target=lambda: accepted.append(_connect(store)), daemon=True)
    thread.start()
    deadline = time.monotonic() + CONNECT_SECONDS
    while thread.is_alive() and time.monotonic() < deadline and not (give_up is not None and give_up()):
        thread.join(_POLL_SECONDS)
    return bool(accepted and accepted[0])


def _connect(store: Store) -> bool:
    endpoint = urlsplit(store.endpoint)
    default = {"s3": f"s3.{store.region}.amazonaws.com", "gcs": "storage.googleapis.com"}.get(
        store.service, f"{store.account}.blob.core.windows.net"
    )
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection((endpoint.hostname or default, port), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _wait(process: subprocess.Popen[bytes], deadline: float, give_up: Callable[[], bool] | None) -> int | None:
    descriptor = os.pidfd_open(process.pid)
    try:
        while (left := deadline - time.monotonic()) > 0:
            if select.select([descriptor], [], [], min(left, _POLL_SECONDS) if give_up else left)[0]:
                return process.wait()
            if give_up is not None and give_up():
                return None
        return None
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the program's session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")
