"""One etcd and one kube-apiserver."""

from __future__ import annotations

import atexit
import base64
import contextlib
import http.client
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from steersman.client.config import ClusterConfig, load_config
from steersman.errors import ConfigurationError, SteersmanError
from steersman.testing.envtest.process import ServerProcess
from steersman.testing.envtest.second import SecondApiServer

if TYPE_CHECKING:
    from types import TracebackType

    from steersman.testing.envtest.certificates import Authority, Pair

_NEEDED = ("etcd", "kube-apiserver")
_ADMINISTRATORS = "system:masters"
_POLL_INTERVAL = 0.05
# etcd wants the form of host and port even here; it makes sockets of these names in its working directory.
_ETCD_SOCKET = "unix://etcd:0"
_PEER_SOCKET = "unix://peer:0"


def find_binaries(assets: str | os.PathLike[str] | None = None) -> Path:
    """The directory with ``etcd`` and ``kube-apiserver``.

    Args:
        assets: the directory. Without it: ``$KUBEBUILDER_ASSETS``, then the newest in setup-envtest's store, then
            the newest that this project's devcluster has built.

    Raises:
        ConfigurationError: nothing was found, or a program is missing; says what to do.
    """
    told = assets or os.environ.get("KUBEBUILDER_ASSETS")
    if told:
        directory = Path(told)
        for name in _NEEDED:
            if not (directory / name).exists():
                raise ConfigurationError(f"{directory} has no {name}: point KUBEBUILDER_ASSETS at a complete set")
        return directory.resolve()
    found = [d for d in _known_places() if all((d / name).exists() for name in _NEEDED)]
    if not found:
        raise ConfigurationError(
            "etcd and kube-apiserver were not found: run `setup-envtest use`, or set KUBEBUILDER_ASSETS"
        )
    return max(found, key=lambda d: d.stat().st_mtime)


def _known_places() -> list[Path]:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return [
        *(data / "kubebuilder-envtest" / "k8s").glob(f"*-{sys.platform}-{machine}"),
        *(cache / "steersman" / "binaries").glob("*/bin"),
    ]


class Envtest:
    """A running API server. Made by ``start``; ends with the ``with`` block, with ``stop``, or with the interpreter.

    Environments do not meet: each has its own directory, port and certificates, so tests may run in parallel.

    Attributes:
        directory: everything of this environment, logs included; removed at the end.
        kubeconfig: a kubeconfig file of an administrator.
        server: the URL.
    """

    def __init__(self, binaries: Path, arguments: Mapping[str, str]) -> None:
        from steersman.testing.envtest.certificates import Authority, new_key

        self._binaries = binaries
        self._arguments = arguments
        self.directory = Path(tempfile.mkdtemp(prefix="envtest-"))
        self._reservation = _reserve_port()
        self._port: int = self._reservation.getsockname()[1]
        self.server = f"https://127.0.0.1:{self._port}"
        self._authority: Authority = Authority()
        self._administrator = self._authority.client("envtest", [_ADMINISTRATORS])
        self._etcd: ServerProcess | None = None
        self._apiserver: ServerProcess | None = None
        pair = self._authority.server(["localhost", "kubernetes", "kubernetes.default"], ["127.0.0.1", "10.0.0.1"])
        self._write("ca.crt", self._authority.certificate)
        self._write("apiserver.crt", pair.certificate)
        self._write("apiserver.key", pair.key)
        self._write("service-accounts.key", new_key())
        self.kubeconfig = self._write_kubeconfig("admin", self._administrator)

    @staticmethod
    def start(
        assets: str | os.PathLike[str] | None = None,
        *,
        arguments: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Envtest:
        """Starts etcd and kube-apiserver and waits until they are ready.

        Args:
            assets: see ``find_binaries``.
            arguments: more command-line arguments for kube-apiserver, such as ``{"feature-gates": "X=true"}``.
            timeout: seconds.

        Raises:
            ConfigurationError: the programs were not found, or ``steersman[testing]`` is not installed.
            SteersmanError: they did not start; the end of their output is part of the message.
        """
        binaries = find_binaries(assets)
        try:
            environment = Envtest(binaries, arguments or {})
        except ModuleNotFoundError as error:
            raise ConfigurationError(f"{error.name} is missing: install steersman[testing]") from error
        atexit.register(environment.stop)
        try:
            environment._begin(timeout)
        except BaseException:
            environment.stop()
            raise
        return environment

    def __enter__(self) -> Envtest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig_dict(self) -> dict[str, Any]:
        """The administrator's kubeconfig."""
        return yaml.safe_load(self.kubeconfig.read_text())

    @property
    def config(self) -> ClusterConfig:
        """How to connect as administrator."""
        return load_config(self.kubeconfig)

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the processes that run."""
        return tuple(p.pid for p in (self._etcd, self._apiserver) if p is not None and not p.ended)

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file of the user ``name``, who may do what RBAC says and nothing else."""
        return self._write_kubeconfig(
            f"user-{base64.urlsafe_b64encode(name.encode()).decode()}", self._issue(name, groups)
        )

    def _issue(self, name: str, groups: Sequence[str]) -> Pair:
        return self._authority.client(name, groups)

    def kill_apiserver(self) -> None:
        """Kills kube-apiserver, as a crash does. Its port stays ours: connections are refused."""
        if self._apiserver is not None:
            self._apiserver.kill()

    def start_apiserver(self, timeout: float = 60.0) -> None:
        """Starts kube-apiserver where it was killed, with the same address, data and certificates.

        Raises:
            SteersmanError: it did not start within ``timeout`` seconds.
        """
        self.begin_apiserver()
        self.wait_until_ready(timeout)

    def begin_apiserver(self) -> None:
        """As ``start_apiserver``, without waiting: what a client meets while the server comes up can be seen."""
        self._apiserver = ServerProcess(
            self.apiserver_command(self._port, _ETCD_SOCKET), self.directory / "kube-apiserver.log"
        )

    def restart_apiserver(self, grace: float = 0.0, timeout: float = 60.0) -> None:
        """Ends kube-apiserver and starts it again.

        Args:
            grace: seconds to end orderly; with 0 it is killed.
            timeout: seconds to become ready.
        """
        if self._apiserver is not None:
            self._apiserver.stop(grace)
        self.start_apiserver(timeout)

    @contextmanager
    def paused_apiserver(self) -> Generator[None]:
        """Stops kube-apiserver (SIGSTOP) during the block: connections stay open, and nothing is answered.

        Raises:
            SteersmanError: it does not run.
        """
        if self._apiserver is None:
            raise SteersmanError("kube-apiserver does not run")
        self._apiserver.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._apiserver.signal(signal.SIGCONT)

    def compact(self) -> int:
        """Has etcd forget everything but the present, and returns its revision.

        Lists and watches that are read from etcd at an older version get Expired (410); what kube-apiserver still
        holds in its watch cache it goes on serving, unless it runs with ``{"watch-cache": "false"}``.
        Source: etcd, "API reference", ``Compact``.

        Raises:
            SteersmanError: etcd refused.
        """
        with _EtcdConnection(self.directory / _ETCD_SOCKET.removeprefix("unix://")) as etcd:
            revision = int(etcd.call("/v3/kv/range", {"key": "AA=="})["header"]["revision"])
            etcd.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def stop(self) -> None:
        """Ends both processes and removes the directory. May be called again."""
        atexit.unregister(self.stop)
        for process in (self._apiserver, self._etcd):
            if process is not None:
                # Nothing of this is kept, so there is nothing to shut down in order.
                process.kill()
        self._reservation.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _begin(self, timeout: float) -> None:
        self._etcd = ServerProcess(self._etcd_command(), self.directory / "etcd.log")
        self.start_apiserver(timeout)

    def _etcd_command(self) -> list[str]:
        # On sockets below our own directory there are no ports to collide and nobody else can write.
        client, peer = _ETCD_SOCKET, _PEER_SOCKET
        return [
            str(self._binaries / "etcd"),
            "--name=envtest",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=envtest={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def apiserver_command(self, port: int, etcd: str) -> list[str]:
        """The command line of a kube-apiserver that listens on ``port`` and keeps its data in ``etcd``."""
        directory = self.directory
        arguments = {
            "etcd-servers": etcd,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(port),
            "permit-port-sharing": "true",
            "cert-dir": str(directory),
            "tls-cert-file": str(directory / "apiserver.crt"),
            "tls-private-key-file": str(directory / "apiserver.key"),
            "client-ca-file": str(directory / "ca.crt"),
            "service-account-issuer": f"{self.server}/",
            "service-account-key-file": str(directory / "service-accounts.key"),
            "service-account-signing-key-file": str(directory / "service-accounts.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "allow-privileged": "true",
            # Without the controller manager nobody makes the accounts that this plugin asks for.
            "disable-admission-plugins": "ServiceAccount",
            **self._arguments,
        }
        return [str(self._binaries / "kube-apiserver"), *(f"--{k}={v}" for k, v in arguments.items())]

    def second_apiserver(self, timeout: float = 60.0) -> SecondApiServer:
        """Starts another kube-apiserver on the same etcd, which can be made to lag: ``with`` it, or ``stop`` it.

        Raises:
            SteersmanError: it did not start within ``timeout`` seconds.
        """
        etcd = self.directory / _ETCD_SOCKET.removeprefix("unix://")
        return SecondApiServer(self, _reserve_port(), etcd, timeout)

    def wait_until_ready(self, timeout: float = 60.0, *, port: int = 0) -> None:
        """Returns once kube-apiserver (at ``port``, if that is not the first one's) is ready.

        Raises:
            SteersmanError: not within ``timeout`` seconds, or a process ended; says what it said last.
        """
        trust = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        self._load_identity(trust)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for process in (self._etcd, self._apiserver):
                if process is not None and process.ended:
                    raise SteersmanError(f"{process.log.stem} ended at once:\n{process.last_words()}")
            if self._is_ready(trust, port or self._port):
                return
            time.sleep(_POLL_INTERVAL)
        words = self._apiserver.last_words() if self._apiserver is not None else ""
        raise SteersmanError(f"kube-apiserver was not ready after {timeout:.0f} s:\n{words}")

    def _load_identity(self, trust: ssl.SSLContext) -> None:
        pair = self._administrator
        trust.load_cert_chain(self._write("admin.crt", pair.certificate), self._write("admin.key", pair.key))

    def _is_ready(self, trust: ssl.SSLContext, port: int) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trust)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            # The default namespace is among the last things that the server makes for itself.
            return all(_answers(connection, p) for p in ("/readyz", "/api/v1/namespaces/default"))
        return False

    def _write(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path

    def write_kubeconfig(self, name: str, server: str) -> Path:
        """Writes a kubeconfig file of the administrator for the API server at ``server``."""
        return self._write_kubeconfig(name, self._administrator, server)

    def _write_kubeconfig(self, name: str, pair: Pair, server: str = "") -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "envtest",
                    "cluster": {
                        "server": server or self.server,
                        "certificate-authority-data": _text(self._authority.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": _text(pair.certificate),
                        "client-key-data": _text(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": name}}],
            "current-context": "envtest",
        }
        return self._write(f"{name}.kubeconfig", yaml.safe_dump(document).encode())


class _EtcdConnection(http.client.HTTPConnection):
    """etcd's JSON gateway, on its Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def __enter__(self) -> _EtcdConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.request("POST", path, json.dumps(body))
        response = self.getresponse()
        answer = json.loads(response.read())
        if response.status != http.client.OK:
            raise SteersmanError(f"etcd refused {path}: {answer.get('message', answer)}")
        return answer


def _answers(connection: http.client.HTTPSConnection, path: str) -> bool:
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response.status == http.client.OK


def _reserve_port() -> socket.socket:
    """A socket that is bound to a free loopback port and never listens: the port is ours until it is closed.

    With SO_REUSEPORT here and ``--permit-port-sharing`` there, kube-apiserver can bind it nevertheless.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
