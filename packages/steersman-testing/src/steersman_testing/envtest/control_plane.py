"""The etcd and kube-apiserver of an environment."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import ssl
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from steersman.client.config import ClusterConfig
from steersman.client.credentials import ClientCertificate
from steersman.errors import SteersmanError
from steersman_testing.envtest.directory import EnvironmentDirectory
from steersman_testing.envtest.etcd import EtcdConnection
from steersman_testing.envtest.kubeconfig import build_kubeconfig
from steersman_testing.envtest.ports import reserve_port
from steersman_testing.envtest.process import ServerProcess
from steersman_testing.envtest.second_apiserver import SecondApiServer

ADMIN_GROUP = "system:masters"
_POLL_INTERVAL = 0.05
# etcd requires the form host:port for Unix sockets too. It creates them in its working directory.
_ETCD_SOCKET = "unix://etcd:0"
_PEER_SOCKET = "unix://peer:0"


class ControlPlane:
    """One etcd and one kube-apiserver, with methods to inject failures.

    Attributes:
        directory: working directory, including logs.
        server: URL of the API server.
        config: connection of the administrator.
    """

    def __init__(self, binaries: Path, arguments: Mapping[str, str], home: EnvironmentDirectory) -> None:
        from steersman_testing.envtest.certificates import CertificateAuthority, generate_key

        self._binaries = binaries
        self._arguments = arguments
        self._home = home
        self.directory = home.path
        self._port_reservation = reserve_port(socket.SO_REUSEPORT)
        self._port: int = self._port_reservation.getsockname()[1]
        self.server = f"https://127.0.0.1:{self._port}"
        self._authority = CertificateAuthority()
        self.config = self.config_for_user("envtest", [ADMIN_GROUP])
        self._etcd: ServerProcess | None = None
        self._apiserver: ServerProcess | None = None
        pair = self._authority.issue_server(
            ["localhost", "kubernetes", "kubernetes.default"], ["127.0.0.1", "10.0.0.1"]
        )
        home.write("ca.crt", self._authority.certificate)
        home.write("apiserver.crt", pair.certificate)
        home.write("apiserver.key", pair.key)
        home.write("service-accounts.key", generate_key())

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running processes."""
        return tuple(p.pid for p in (self._etcd, self._apiserver) if p is not None and not p.has_exited)

    def config_for_user(self, name: str, groups: Sequence[str]) -> ClusterConfig:
        """Connection with a client certificate for a user and groups."""
        pair = self._authority.issue_client(name, groups)
        credentials = ClientCertificate(pair.certificate, pair.key)
        return ClusterConfig(server=self.server, ca=self._authority.certificate, credentials=credentials)

    def spawn(self) -> None:
        """Starts etcd and kube-apiserver; ``wait_until_ready`` waits for them."""
        self._etcd = ServerProcess(self._etcd_command(), self.directory / "etcd.log")
        self.spawn_apiserver()

    def stop(self) -> None:
        """Ends both. May be called again."""
        for process in (self._apiserver, self._etcd):
            if process is not None:
                # Nothing of this is kept, so there is nothing to shut down in order.
                process.kill()
        self._port_reservation.close()

    def kill_apiserver(self) -> None:
        """Kill kube-apiserver. Its port remains reserved, so that connections are refused."""
        if self._apiserver is not None:
            self._apiserver.kill()

    def start_apiserver(self, timeout: float = 60.0) -> None:
        """Start kube-apiserver again with the same address, data and certificates.

        Raises:
            SteersmanError: if it does not start within ``timeout`` seconds.
        """
        self.spawn_apiserver()
        self.wait_until_ready(timeout)

    def spawn_apiserver(self) -> None:
        """Start kube-apiserver without waiting for readiness."""
        self._apiserver = ServerProcess(
            self.apiserver_command(self._port, _ETCD_SOCKET), self.directory / "kube-apiserver.log"
        )

    def restart_apiserver(self, grace: float = 0.0, timeout: float = 60.0) -> None:
        """Restart kube-apiserver.

        Args:
            grace: seconds for a graceful shutdown. 0 kills the process.
            timeout: seconds to wait for readiness.
        """
        if self._apiserver is not None:
            self._apiserver.stop(grace)
        self.start_apiserver(timeout)

    @contextmanager
    def paused_apiserver(self) -> Generator[None]:
        """Pause kube-apiserver with SIGSTOP during the block.

        Connections stay open without response.

        Raises:
            SteersmanError: if it is not running.
        """
        if self._apiserver is None:
            raise SteersmanError("kube-apiserver is not running")
        self._apiserver.pause()
        try:
            yield
        finally:
            self._apiserver.signal(signal.SIGCONT)

    def compact(self) -> int:
        """Compact etcd to its current revision, and return the revision.

        Lists and watches that read an older version from etcd then fail with Expired (410). kube-apiserver
        continues to serve older versions from its watch cache, unless it runs with ``{"watch-cache": "false"}``.

        Raises:
            SteersmanError: if etcd rejects the request.

        Source: etcd, "API reference", ``Compact``.
        """
        with EtcdConnection(self.directory / _ETCD_SOCKET.removeprefix("unix://")) as etcd:
            revision = int(etcd.call("/v3/kv/range", {"key": "AA=="})["header"]["revision"])
            etcd.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _etcd_command(self) -> list[str]:
        # Unix sockets in a private directory need no ports and are not accessible to other users.
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
        """Command line of a kube-apiserver on ``port`` with the given etcd."""
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
            # The plugin requires service accounts, which only the controller manager creates.
            "disable-admission-plugins": "ServiceAccount",
            **self._arguments,
        }
        return [str(self._binaries / "kube-apiserver"), *(f"--{k}={v}" for k, v in arguments.items())]

    def second_apiserver(self, timeout: float = 60.0) -> SecondApiServer:
        """Start a second kube-apiserver on the same etcd.

        Its view can be delayed with ``stall``.

        Raises:
            SteersmanError: if it does not start within ``timeout`` seconds.
        """
        etcd = self.directory / _ETCD_SOCKET.removeprefix("unix://")
        return SecondApiServer(self, reserve_port(socket.SO_REUSEPORT), etcd, timeout)

    def wait_until_ready(self, timeout: float = 60.0, *, port: int = 0) -> None:
        """Wait until kube-apiserver is ready.

        Args:
            timeout: seconds to wait.
            port: port of the server. Defaults to that of the first one.

        Raises:
            SteersmanError: after ``timeout``, or if a process exits. The message contains the end of its logs.
        """
        tls_context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        self._load_identity(tls_context)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for process in (self._etcd, self._apiserver):
                if process is not None and process.has_exited:
                    raise SteersmanError(f"{process.log.stem} exited at start:\n{process.log_tail()}")
            if self._is_ready(tls_context, port or self._port):
                return
            time.sleep(_POLL_INTERVAL)
        log_tail = self._apiserver.log_tail() if self._apiserver is not None else ""
        raise SteersmanError(f"kube-apiserver was not ready after {timeout:.0f} s:\n{log_tail}")

    def _load_identity(self, tls_context: ssl.SSLContext) -> None:
        identity = self.config.credentials.load()
        assert identity.certificate is not None and identity.key is not None
        tls_context.load_cert_chain(
            self._home.write("admin.crt", identity.certificate), self._home.write("admin.key", identity.key)
        )

    def _is_ready(self, tls_context: ssl.SSLContext, port: int) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls_context)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            # The default namespace is one of the last objects that the server creates at start.
            return all(_responds_ok(connection, p) for p in ("/readyz", "/api/v1/namespaces/default"))
        return False

    def write_kubeconfig(self, name: str, config: ClusterConfig) -> Path:
        """Write a kubeconfig file for ``config``."""
        return self._home.write(f"{name}.kubeconfig", build_kubeconfig(config, name))


def _responds_ok(connection: http.client.HTTPSConnection, path: str) -> bool:
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response.status == http.client.OK
