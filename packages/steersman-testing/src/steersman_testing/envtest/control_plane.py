"""One etcd and one kube-apiserver."""

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
# etcd wants the form of host and port even here; it makes sockets of these names in its working directory.
_ETCD_SOCKET = "unix://etcd:0"
_PEER_SOCKET = "unix://peer:0"


class ControlPlane:
    """One etcd and one kube-apiserver, and what can befall them: made and ended by an ``Envtest``.

    Attributes:
        directory: where they run, logs included.
        server: the URL.
        config: how to connect as administrator.
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
        """The ids of the processes that run."""
        return tuple(p.pid for p in (self._etcd, self._apiserver) if p is not None and not p.has_exited)

    def config_for_user(self, name: str, groups: Sequence[str]) -> ClusterConfig:
        """How ``name``, a member of ``groups``, connects: with a client certificate."""
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
        """Kills kube-apiserver, as a crash does. Its port stays ours: connections are refused."""
        if self._apiserver is not None:
            self._apiserver.kill()

    def start_apiserver(self, timeout: float = 60.0) -> None:
        """Starts kube-apiserver where it was killed, with the same address, data and certificates.

        Raises:
            SteersmanError: it did not start within ``timeout`` seconds.
        """
        self.spawn_apiserver()
        self.wait_until_ready(timeout)

    def spawn_apiserver(self) -> None:
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
        self._apiserver.pause()
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
        with EtcdConnection(self.directory / _ETCD_SOCKET.removeprefix("unix://")) as etcd:
            revision = int(etcd.call("/v3/kv/range", {"key": "AA=="})["header"]["revision"])
            etcd.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

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
        return SecondApiServer(self, reserve_port(socket.SO_REUSEPORT), etcd, timeout)

    def wait_until_ready(self, timeout: float = 60.0, *, port: int = 0) -> None:
        """Returns once kube-apiserver (at ``port``, if that is not the first one's) is ready.

        Raises:
            SteersmanError: not within ``timeout`` seconds, or a process ended; says what it said last.
        """
        tls_context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        self._load_identity(tls_context)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for process in (self._etcd, self._apiserver):
                if process is not None and process.has_exited:
                    raise SteersmanError(f"{process.log.stem} ended at once:\n{process.log_tail()}")
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
            # The default namespace is among the last things that the server makes for itself.
            return all(_responds_ok(connection, p) for p in ("/readyz", "/api/v1/namespaces/default"))
        return False

    def write_kubeconfig(self, name: str, config: ClusterConfig) -> Path:
        """A kubeconfig file that says what ``config`` says."""
        return self._home.write(f"{name}.kubeconfig", build_kubeconfig(config, name))


def _responds_ok(connection: http.client.HTTPSConnection, path: str) -> bool:
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response.status == http.client.OK
