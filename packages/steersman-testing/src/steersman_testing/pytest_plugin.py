"""The pytest plugin: an API server in memory, and the real one without a cluster, as fixtures.

Every fixture is a plain one, so that tests need no plugin for asyncio, and work with any. What a fixture needs is
imported when a test asks for it: who has this installed and does not use it pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from steersman.meta.manifests import Manifest
    from steersman.rbac import ResourceAccess
    from steersman_testing import InMemoryApiServer
    from steersman_testing.envtest import Envtest
    from steersman_testing.manifests import ManifestSource

_RECORDER_PLUGIN = "steersman-rbac"
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the options of ``pyproject.toml`` and ``pytest.ini``."""
    parser.addoption(
        "--steersman-rbac",
        metavar="FILE",
        help="add what the users of steersman_rbac_user ask of API servers to FILE, for steersman rbac check",
    )
    parser.addini(
        "steersman_rbac_user",
        "whose requests --steersman-rbac records: system:serviceaccount:NAMESPACE:NAME, or a name of envtest.user",
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
    parser.addini(
        "steersman_envtest_version", "the version of Kubernetes for the fixture envtest, such as 1.36", default=""
    )
    parser.addini(
        "steersman_envtest_arguments",
        "more arguments of kube-apiserver for the fixture envtest, such as feature-gates=X=true",
        type="linelist",
    )
    parser.addini(
        "steersman_detect_mutations",
        "fail tests in which somebody changes an object that a cache shares",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, and switches on what was asked for."""
    config.addinivalue_line(
        "markers", "envtest: needs the real API server; every test that asks for the fixture envtest has it"
    )
    if file := config.getoption("--steersman-rbac"):
        users: list[str] = config.getini("steersman_rbac_user")
        if not users:
            raise pytest.UsageError("--steersman-rbac needs the option steersman_rbac_user: who is the operator?")
        config.pluginmanager.register(_AccessRecorder(config.rootpath / file, users), _RECORDER_PLUGIN)
    if config.getini("steersman_detect_mutations"):
        config.pluginmanager.register(_MutationDetection(), "steersman-mutations")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that need the real API server."""
    for item in items:
        if isinstance(item, pytest.Function) and "envtest" in item.fixturenames:
            item.add_marker("envtest")


class _AccessRecorder:
    """Notes what some users ask while tests run, and adds it to a file at the end."""

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
        """Gives the arguments of a kube-apiserver whose requests are noted at the end of the block."""
        from steersman_testing.access_recording import AuditLog

        with TemporaryDirectory(prefix="steersman-audit-") as directory:
            log = AuditLog(Path(directory))
            yield log.apiserver_arguments
            self._seen |= log.accesses(self._users)


class _MutationDetection:
    """Watches from the first fixture on, and fails the test itself."""

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
    """An API server in memory, in virtual time, with the definitions of the option ``steersman_crds``.

    Decorate the test with ``steersman_testing.virtual_time``, and give ``apiserver.runtime`` to the manager.
    """
    from steersman_testing import InMemoryApiServer, virtual_runtime
    from steersman_testing.manifests import CRD_KINDS

    server = InMemoryApiServer(virtual_runtime())
    with _fail_without_traceback():
        server.load(*_load_option(pytestconfig, "steersman_crds", CRD_KINDS))
    return server


@pytest.fixture(scope="session")
def envtest(pytestconfig: pytest.Config) -> Generator[Envtest]:
    """The real API server, one a session, or one a worker of pytest-xdist; with what the options say."""
    from steersman_testing.envtest import Envtest
    from steersman_testing.manifests import CRD_KINDS, WEBHOOK_KINDS

    version = pytestconfig.getini("steersman_envtest_version")
    with _fail_without_traceback():
        # First, since what is wrong here is told without waiting for a server.
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
    """The name of a new namespace on the real API server; it and everything in it are gone after the test."""
    item = cast("pytest.Item", request.node)  # pyright: ignore[reportUnknownMemberType]
    with envtest.namespace(item.name) as namespace:
        yield namespace


@contextmanager
def _fail_without_traceback() -> Generator[None]:
    """Our errors say what to do; where they were raised is of no use to who wrote the test."""
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
            from steersman.crd.kinds import find_kinds

            found += find_kinds(entry)
    return collect_manifests(found, kinds)


def _is_manifest_path(entry: str, path: Path) -> bool:
    """Whether ``entry`` is the path of manifests, and no module."""
    if "/" in entry or path.suffix in _MANIFEST_SUFFIXES:
        return True
    return path.is_file() or (path.is_dir() and not (path / "__init__.py").exists())


def _apiserver_arguments(config: pytest.Config) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for entry in config.getini("steersman_envtest_arguments"):
        name, equals, value = entry.strip().removeprefix("--").partition("=")
        arguments[name] = value if equals else "true"
    return arguments
