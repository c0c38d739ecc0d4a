"""API servers on this machine, and their kubeconfig files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from steersman.errors import ConfigurationError

if TYPE_CHECKING:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.envtest import Envtest
    from steersman_testing.serving import ApiEndpoint

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

    with _serve_in_thread(port) as endpoint:
        config = ClusterConfig(server=endpoint.url, proxy_url="", source="the in-memory API server")
        with Envtest(EnvironmentDirectory(), config, None) as environment:
            yield environment


@contextmanager
def _serve_in_thread(port: int) -> Generator[ApiEndpoint]:
    """Serve an in-memory API server in a thread.

    The calling thread waits for changed files and signals.
    """
    started: Future[tuple[ApiEndpoint, Callable[[], object]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(port, started)), name="api-server", daemon=True)
    thread.start()
    endpoint, stop = started.result()
    try:
        yield endpoint
    finally:
        stop()
        thread.join()


async def _serve(port: int, started: Future[tuple[ApiEndpoint, Callable[[], object]]]) -> None:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.serving import serve

    server, stopped, loop = InMemoryApiServer(), asyncio.Event(), asyncio.get_running_loop()
    try:
        async with serve(server, port=port) as endpoint:
            started.set_result((endpoint, lambda: loop.call_soon_threadsafe(stopped.set)))
            await compact_periodically(server, stopped)
    except Exception as error:
        if started.done():
            raise
        started.set_exception(error)


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
        path.write_text(content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
