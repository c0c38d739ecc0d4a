"""API servers on this machine, and their kubeconfig files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from steersman.errors import ConfigurationError

if TYPE_CHECKING:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.envtest import Envtest
    from steersman_testing.serving import ApiEndpoint

R = TypeVar("R")

# Current contexts of the kubeconfig files of both API servers.
_OWN_CONTEXTS = ("envtest", "steersman-testing")
_COMPACTION_INTERVAL_SECONDS = 300.0


def start_api_server(*, envtest: bool, port: int) -> AbstractContextManager[Envtest]:
    """Start an API server for the length of a ``with`` block.

    Args:
        envtest: start etcd and kube-apiserver. False: start the in-memory API server.
        port: port of the in-memory API server. 0 selects a free port.

    Raises:
        ConfigurationError: the port is in use, or the programs or ``cryptography`` are missing.
    """
    from steersman_testing.envtest import Envtest

    return Envtest.start(existing=False) if envtest else _in_memory_environment(port)


@contextmanager
def _in_memory_environment(port: int) -> Generator[Envtest]:
    from steersman.client import ClusterConfig
    from steersman_testing.envtest import Envtest
    from steersman_testing.envtest.directory import EnvironmentDirectory

    with _in_thread("api-server", partial(_serve, port)) as endpoint:
        config = ClusterConfig(server=endpoint.url, proxy_url="", source="the in-memory API server")
        with Envtest(EnvironmentDirectory(), config, None) as environment:
            yield environment


@contextmanager
def simulated_workloads(environment: Envtest) -> Generator[None]:
    """Report workloads as ready for the length of a ``with`` block."""
    with _in_thread("workloads", partial(_complete_workloads, environment)):
        yield


async def _serve(port: int, started: Future[ApiEndpoint], stopped: asyncio.Event) -> None:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.serving import serve

    server = InMemoryApiServer()
    async with serve(server, port=port) as endpoint:
        started.set_result(endpoint)
        await compact_periodically(server, stopped)


async def _complete_workloads(environment: Envtest, started: Future[None], stopped: asyncio.Event) -> None:
    from steersman.client import connect
    from steersman.manager import Manager, ManagerOptions
    from steersman_testing.workloads import complete_workloads

    async with connect(environment.config) as transport:
        manager = Manager(transport, ManagerOptions(name="steersman-workloads", blocked_loop_limit=0))
        complete_workloads(manager)
        started.set_result(None)
        running = asyncio.create_task(manager.run())
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        manager.stop()
        await running


@contextmanager
def _in_thread(name: str, main: Callable[[Future[R], asyncio.Event], Coroutine[Any, Any, None]]) -> Generator[R]:
    """Run ``main`` in a thread for the length of a ``with`` block.

    The calling thread waits for changed files and signals.

    Args:
        name: name of the thread.
        main: runs in an event loop of its own. It sets the result of the future, and returns after the event.
    """
    started: Future[R] = Future()
    loops: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        stopped = asyncio.Event()
        loops.set_result((asyncio.get_running_loop(), stopped))
        try:
            await main(started, stopped)
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name=name, daemon=True)
    thread.start()
    loop, stopped = loops.result()
    try:
        yield started.result()
    finally:
        with suppress(RuntimeError):  # the loop is closed after an error
            loop.call_soon_threadsafe(stopped.set)
        thread.join()


async def compact_periodically(server: InMemoryApiServer, stopped: asyncio.Event) -> None:
    """Compact old revisions every 5 minutes until ``stopped`` is set."""
    compact_revision = server.resource_version
    while not stopped.is_set():
        try:
            async with asyncio.timeout(_COMPACTION_INTERVAL_SECONDS):
                await stopped.wait()
        except TimeoutError:
            server.compact(compact_revision)
            server.requests.clear()
            server.rbac_denials.clear()
            compact_revision = server.resource_version


def check_kubeconfig_owner(path: Path) -> None:
    """Reject an existing kubeconfig that ``write_kubeconfig`` did not write.

    Raises:
        ConfigurationError: the file is of another program.
    """
    import yaml

    if not path.exists():
        return
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} exists and cannot be read: choose another --kubeconfig") from error
    context = cast("dict[str, Any]", found).get("current-context") if isinstance(found, dict) else None
    if context not in _OWN_CONTEXTS:
        raise ConfigurationError(f"{path} exists and was not written by this command: choose another --kubeconfig")


def write_kubeconfig(path: Path, content: str) -> None:
    """Write a kubeconfig that only the user can read.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        path.touch(mode=0o600)
        # The mode of an existing file is not changed by touch.
        path.chmod(0o600)
        path.write_text(content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
