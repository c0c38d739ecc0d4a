"""pytest plugin with fixtures for the in-memory and the real API server.

All fixtures are synchronous, so they work with any asyncio plugin. Their dependencies are imported on first use. An
installed but unused plugin costs no import time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from steersman_manifests.manifest_files import Manifest
    from steersman_manifests.rbac import ResourceAccess
    from steersman_testing import InMemoryApiServer
    from steersman_testing.envtest import Envtest
    from steersman_testing.manifests import ManifestSource

_RECORDER_PLUGIN = "steersman-rbac"
_MAX_PROCESSES = 256
_PROGRESS_INTERVAL_SECONDS = 0.2
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the command-line and ini options."""
    parser.addoption(
        "--steersman-rbac",
        metavar="FILE",
        help="add the API accesses of steersman_rbac_user to FILE, for steersman rbac check",
    )
    parser.addini(
        "steersman_rbac_user",
        "users for --steersman-rbac: system:serviceaccount:NAMESPACE:NAME, or a name of envtest.user",
        type="linelist",
    )
    parser.addini(
        "steersman_crds",
        "definitions for the fixtures apiserver and envtest: files, directories, modules, or package.module:Kind",
        type="linelist",
    )
    parser.addini(
        "steersman_webhooks", "webhook configurations for the fixture envtest: files or directories", type="linelist"
    )
    parser.addini("steersman_envtest_version", "Kubernetes version of the fixture envtest, such as 1.36", default="")
    parser.addini(
        "steersman_envtest_arguments",
        "additional arguments of kube-apiserver for the fixture envtest, such as feature-gates=X=true",
        type="linelist",
    )
    parser.addoption(
        "--steersman-processes",
        metavar="N",
        help="number of processes of a simulation, or auto for the available cores; see steersman_processes",
    )
    parser.addini(
        "steersman_processes",
        "number of processes of a simulation, or auto for the available cores. Needs Linux",
        default="1",
    )
    parser.addini(
        "steersman_detect_mutations",
        "fail tests that mutate an object of a cache",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the requested features."""
    config.addinivalue_line(
        "markers", "envtest: needs the real API server; added to every test that uses the fixture envtest"
    )
    if file := config.getoption("--steersman-rbac"):
        users: list[str] = config.getini("steersman_rbac_user")
        if not users:
            raise pytest.UsageError("--steersman-rbac needs the option steersman_rbac_user: set it")
        config.pluginmanager.register(_AccessRecorder(config.rootpath / file, users), _RECORDER_PLUGIN)
    if config.getini("steersman_detect_mutations"):
        config.pluginmanager.register(_MutationDetection(), "steersman-mutations")
    _configure_sweeps(config)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the real API server."""
    for item in items:
        if isinstance(item, pytest.Function) and "envtest" in item.fixturenames:
            item.add_marker("envtest")


def _configure_sweeps(config: pytest.Config) -> None:
    from steersman_testing.sweep_settings import settings

    if hasattr(config, "workerinput"):
        # pytest-xdist uses the cores already.
        settings.processes, settings.on_progress = 1, None
        return
    # Recorded accesses and mutations of other processes would be lost.
    in_one_process = config.getoption("--steersman-rbac") or config.getini("steersman_detect_mutations")
    text = config.getoption("--steersman-processes") or config.getini("steersman_processes")
    settings.processes = 1 if in_one_process else _parse_processes(text)
    settings.on_progress = _SweepProgress(config) if sys.stdout.isatty() else None


def _parse_processes(text: str) -> int:
    if text == "auto":
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_PROCESSES:
        allowed = f"neither auto nor a number from 1 to {_MAX_PROCESSES}"
        raise pytest.UsageError(f"steersman_processes: {text!r} is {allowed}")
    return int(text)


class _SweepProgress:
    """Shows the progress of a simulation on a terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shown_at = 0.0

    def __call__(self, finished: int, total: int) -> None:
        now = time.monotonic()
        if now - self._shown_at < _PROGRESS_INTERVAL_SECONDS and finished < total:
            return
        self._shown_at = now
        text = f"simulation: {finished} of {total} runs" if finished < total else ""
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            sys.stdout.write(f"\r{text:<40}\r")
            sys.stdout.flush()


class _AccessRecorder:
    """Records accesses of users and adds them to a file."""

    def __init__(self, file: Path, users: list[str]) -> None:
        self._file = file
        self._users = users
        self._seen: set[ResourceAccess] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        from steersman_testing.access_recording import record_accesses, write_accesses

        with record_accesses(self._users) as seen:
            result = yield
        if seen or self._seen:
            write_accesses(self._file, seen | self._seen)
        return result

    @contextmanager
    def audit_real_servers(self) -> Generator[dict[str, str]]:
        """Yield the arguments of kube-apiserver that enable the audit log.

        The accesses are read from the log after the block.
        """
        from steersman_testing.access_recording import AuditLog

        with TemporaryDirectory(prefix="steersman-audit-") as directory:
            log = AuditLog(Path(directory))
            yield log.apiserver_arguments
            self._seen |= log.accesses(self._users)


class _MutationDetection:
    """Detects mutations from the first fixture on and fails the test itself."""

    def __init__(self) -> None:
        self._verify: Callable[[], None] = lambda: None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        from steersman_testing.mutation import detect_mutations_in_all_caches

        with detect_mutations_in_all_caches() as self._verify:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        result = yield
        self._verify()
        return result


@pytest.fixture
def apiserver(pytestconfig: pytest.Config) -> InMemoryApiServer:
    """In-memory API server in virtual time with the definitions of ``steersman_crds``.

    Decorate the test with ``steersman_testing.virtual_time``, and pass ``apiserver.runtime`` to the manager.
    """
    from steersman_testing import InMemoryApiServer, virtual_runtime
    from steersman_testing.manifests import CRD_KINDS

    server = InMemoryApiServer(virtual_runtime())
    with _fail_without_traceback():
        server.load(*_load_option(pytestconfig, "steersman_crds", CRD_KINDS))
    return server


@pytest.fixture(scope="session")
def envtest(pytestconfig: pytest.Config) -> Generator[Envtest]:
    """Real API server, one per session or per pytest-xdist worker."""
    from steersman_testing.envtest import Envtest
    from steersman_testing.manifests import CRD_KINDS, WEBHOOK_KINDS

    version = pytestconfig.getini("steersman_envtest_version")
    with _fail_without_traceback():
        # Before the server starts, so that configuration errors are reported at once.
        crds = _load_option(pytestconfig, "steersman_crds", CRD_KINDS)
        webhooks = _load_option(pytestconfig, "steersman_webhooks", WEBHOOK_KINDS)
    with _audit_arguments(pytestconfig) as audit_arguments:
        with _fail_without_traceback():
            environment = Envtest.start(
                version=version, arguments=_apiserver_arguments(pytestconfig) | audit_arguments
            )
        with environment:
            with _fail_without_traceback():
                if crds:
                    environment.install_crds(*crds)
                if webhooks:
                    environment.install_webhooks(*webhooks)
            yield environment


def _audit_arguments(config: pytest.Config) -> AbstractContextManager[dict[str, str]]:
    recorder = config.pluginmanager.get_plugin(_RECORDER_PLUGIN)
    return recorder.audit_real_servers() if isinstance(recorder, _AccessRecorder) else nullcontext(dict[str, str]())


@pytest.fixture
def envtest_namespace(envtest: Envtest, request: pytest.FixtureRequest) -> Generator[str]:
    """Name of a new namespace on the real API server.

    The namespace and its objects are deleted after the test.
    """
    item = cast("pytest.Item", request.node)  # pyright: ignore[reportUnknownMemberType]
    with envtest.namespace(item.name) as namespace:
        yield namespace


@contextmanager
def _fail_without_traceback() -> Generator[None]:
    """Fail the test with the message of a SteersmanError, without traceback."""
    from steersman.errors import SteersmanError

    try:
        yield
    except SteersmanError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _load_option(config: pytest.Config, option: str, kinds: tuple[str, ...]) -> list[Manifest]:
    from steersman_testing.manifests import collect_manifests

    found: list[ManifestSource] = []
    for entry in config.getini(option):
        path = config.rootpath / entry
        if _is_manifest_path(entry, path):
            found.append(path)
        else:
            from steersman_manifests.kinds import find_kinds

            found += find_kinds(entry)
    return collect_manifests(found, kinds)


def _is_manifest_path(entry: str, path: Path) -> bool:
    """Return True if ``entry`` is a path and not a module."""
    if "/" in entry or path.suffix in _MANIFEST_SUFFIXES:
        return True
    return path.is_file() or (path.is_dir() and not (path / "__init__.py").exists())


def _apiserver_arguments(config: pytest.Config) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for entry in config.getini("steersman_envtest_arguments"):
        name, equals, value = entry.strip().removeprefix("--").partition("=")
        arguments[name] = value if equals else "true"
    return arguments
