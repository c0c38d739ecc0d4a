"""A second API server on the same etcd, which can be made to lag behind the first."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from steersman.client.config import ClusterConfig
from steersman_testing.envtest.process import ServerProcess
from steersman_testing.envtest.socket_proxy import SocketProxy

if TYPE_CHECKING:
    from types import TracebackType


class PrimaryControlPlane(Protocol):
    """What the first server's environment gives to the second."""

    directory: Path
    config: ClusterConfig

    def apiserver_command(self, port: int, etcd: str) -> list[str]: ...

    def wait_until_ready(self, timeout: float = 60.0, *, port: int = 0) -> None: ...

    def write_kubeconfig(self, name: str, config: ClusterConfig) -> Path: ...


class SecondApiServer:
    """Made by ``ControlPlane.second_apiserver``. It serves the same objects, under another URL.

    Attributes:
        server: the URL.
        config: how to connect as administrator.
        kubeconfig: a kubeconfig file of an administrator.

    Raises:
        SteersmanError: it did not start within ``timeout`` seconds.
    """

    def __init__(
        self, control_plane: PrimaryControlPlane, reservation: socket.socket, etcd: Path, timeout: float
    ) -> None:
        self._port_reservation = reservation
        port: int = reservation.getsockname()[1]
        self.server = f"https://127.0.0.1:{port}"
        path = control_plane.directory / f"etcd-{port}:0"
        self._etcd_proxy = SocketProxy(path, etcd)
        command = control_plane.apiserver_command(port, f"unix://{path.name}")
        self._process = ServerProcess(command, control_plane.directory / f"kube-apiserver-{port}.log")
        try:
            control_plane.wait_until_ready(timeout, port=port)
            self.config = replace(control_plane.config, server=self.server)
            self.kubeconfig = control_plane.write_kubeconfig(f"second-{port}", self.config)
        except BaseException:
            self.stop()
            raise

    def stall(self) -> None:
        """Cuts it off from etcd without breaking a connection: its watches tell nothing new from now on."""
        self._etcd_proxy.stall()

    def resume(self) -> None:
        """Lets it hear of what it missed."""
        self._etcd_proxy.resume()

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._etcd_proxy.stop()
        self._port_reservation.close()

    def __enter__(self) -> SecondApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
