"""A second kube-apiserver on the same etcd, whose view can be delayed."""

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
    """The first control plane, as the second API server uses it."""

    directory: Path
    config: ClusterConfig

    def apiserver_command(self, port: int, etcd: str) -> list[str]: ...

    def wait_until_ready(self, timeout: float = 60.0, *, port: int = 0) -> None: ...

    def write_kubeconfig(self, name: str, config: ClusterConfig) -> Path: ...


class SecondApiServer:
    """A second kube-apiserver with its own URL. Created by ``ControlPlane.second_apiserver``.

    Attributes:
        server: URL of the API server.
        config: connection of the administrator.
        kubeconfig: kubeconfig file of the administrator.

    Raises:
        SteersmanError: if it does not start within ``timeout`` seconds.
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
        """Stop all bytes from etcd without closing connections. Watches receive no events."""
        self._etcd_proxy.stall()

    def resume(self) -> None:
        """Forward the delayed bytes."""
        self._etcd_proxy.resume()

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._etcd_proxy.stop()
        self._port_reservation.close()

    def __enter__(self) -> SecondApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
