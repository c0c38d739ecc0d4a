"""Test environment: an own or existing API server with test facilities."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import socket
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from steersman.client import Client, ClusterConfig, Discovery, Impersonation, SyncClient, connect, load_config
from steersman.errors import ConfigurationError, SteersmanError
from steersman.observability.logging import get_logger
from steersman_manifests.manifest_files import Manifest
from steersman_testing.envtest.binaries import find_binaries
from steersman_testing.envtest.control_plane import ControlPlane
from steersman_testing.envtest.directory import EnvironmentDirectory
from steersman_testing.envtest.installer import ResourceInstaller
from steersman_testing.envtest.kubeconfig import build_kubeconfig
from steersman_testing.envtest.namespaces import create_namespace, delete_namespace
from steersman_testing.envtest.user_rbac import RoleReference, UserRbac
from steersman_testing.envtest.webhooks import LocalWebhookServing, prepare_local_serving
from steersman_testing.manifests import WEBHOOK_KINDS, ManifestSource, collect_manifests

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

_LOOPBACK = "127.0.0.1"
_MASTERS_GROUP = "system:masters"
_MAX_COMMON_NAME_LENGTH = 64
_CLEANUP_TIMEOUT_SECONDS = 60.0

log = get_logger("envtest")


@dataclass(frozen=True, slots=True)
class AuthenticatedUser:
    """A user with the permissions that RBAC grants. Created by ``Envtest.user``.

    Attributes:
        name: username in the API server.
        groups: groups of the user, without ``system:authenticated``.
        config: connection and credentials.
        kubeconfig: kubeconfig file for kubectl or an operator process.
    """

    name: str
    groups: tuple[str, ...]
    config: ClusterConfig
    kubeconfig: Path


class Envtest:
    """A running API server. Stops at the end of the ``with`` block or of the interpreter.

    Environments are independent. Each has its own directory, ports and certificates, so tests may run in parallel.

    Attributes:
        directory: all files of the environment, including logs. Removed at the end.
        config: connection of the administrator.
        kubeconfig: kubeconfig file of the administrator.
    """

    def __init__(
        self,
        home: EnvironmentDirectory,
        config: ClusterConfig,
        control_plane: ControlPlane | None,
        webhook_host: str = _LOOPBACK,
    ) -> None:
        self._home = home
        self._control_plane = control_plane
        self._webhook_host = webhook_host
        self._webhook_port_reservation: socket.socket | None = None
        self._owner_pid = os.getpid()
        self.directory = home.path
        self.config = config
        self.kubeconfig = home.write("admin.kubeconfig", build_kubeconfig(config, "admin"))

    @staticmethod
    def start(
        assets: str | os.PathLike[str] | None = None,
        *,
        version: str = "",
        arguments: Mapping[str, str] | None = None,
        existing: bool | None = None,
        webhook_host: str = _LOOPBACK,
        timeout: float = 60.0,
    ) -> Envtest:
        """Start etcd and kube-apiserver, or use an existing cluster.

        Returns when the API server is ready.

        Args:
            assets: see ``find_binaries``.
            version: Kubernetes version, such as ``1.36``. Empty: any version.
            arguments: additional arguments of kube-apiserver, such as ``{"feature-gates": "X=true"}``.
            existing: use the cluster that ``load_config`` finds, and ignore ``assets``, ``version`` and
                ``arguments``. Defaults to True if ``$USE_EXISTING_CLUSTER`` is ``true``.
            webhook_host: address or name of this machine as reached by the API server. Set it for an existing
                cluster.
            timeout: seconds to wait for readiness.

        Raises:
            ConfigurationError: if programs, cluster or the ``cryptography`` package are missing.
            SteersmanError: if a program does not start. The message contains the end of its logs.
        """
        if existing is None:
            existing = os.environ.get("USE_EXISTING_CLUSTER", "").lower() == "true"
        if existing:
            config = load_config()
            environment = Envtest(EnvironmentDirectory(), config, None, webhook_host)
            atexit.register(environment.stop)
            return environment
        binaries = find_binaries(assets, version=version)
        _require_cryptography()
        home = EnvironmentDirectory()
        control_plane = ControlPlane(binaries, arguments or {}, home)
        environment = Envtest(home, control_plane.config, control_plane, webhook_host)
        atexit.register(environment.stop)
        try:
            control_plane.spawn()
            control_plane.wait_until_ready(timeout)
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
    def server(self) -> str:
        """URL of the API server."""
        return self.config.server

    @property
    def kubeconfig_dict(self) -> dict[str, Any]:
        """Kubeconfig of the administrator."""
        return yaml.safe_load(self.kubeconfig.read_text())

    @property
    def control_plane(self) -> ControlPlane:
        """The etcd and kube-apiserver processes, for example to kill or pause them.

        Raises:
            SteersmanError: if the environment uses an existing cluster.
        """
        if self._control_plane is None:
            raise SteersmanError(f"{self.server} is an existing cluster: this needs an API server started by envtest")
        return self._control_plane

    @cached_property
    def webhooks(self) -> LocalWebhookServing:
        """Host, port and certificates of the test's webhook server.

        Raises:
            ConfigurationError: if the ``cryptography`` package is missing.
        """
        _require_cryptography()
        serving, self._webhook_port_reservation = prepare_local_serving(self._home, self._webhook_host)
        return serving

    @asynccontextmanager
    async def client(
        self, user: AuthenticatedUser | None = None, *, field_manager: str = "test"
    ) -> AsyncGenerator[Client]:
        """Client during the block.

        Args:
            user: user of the client. Defaults to the administrator.
            field_manager: field manager of its writes.
        """
        async with connect((user or self).config) as transport:
            yield Client(transport, field_manager=field_manager)

    def user(
        self,
        name: str,
        groups: Sequence[str] = (),
        *,
        roles: Sequence[RoleReference] = (),
        rules: Sequence[Manifest] = (),
        namespace: str = "",
        allow_masters: bool = False,
    ) -> AuthenticatedUser:
        """Create a user or replace the permissions of an existing one.

        The user authenticates with a client certificate. In an existing cluster, and for names over the 64
        characters of a common name (X.520), the administrator impersonates the user.

        Args:
            name: username, such as ``jane`` or ``system:serviceaccount:shop:till``.
            groups: groups of the user. Other bindings of the groups or the user also apply.
            roles: names of existing ClusterRoles, such as ``view``, or manifests of ClusterRoles and Roles to
                install. A Role applies to its own namespace.
            rules: RBAC rules in wire form, as returned by ``policy_rules``.
            namespace: namespace to which ClusterRoles and rules apply. Empty: all namespaces.
            allow_masters: permit the group ``system:masters``, which bypasses RBAC.

        Raises:
            ValueError: if ``groups`` contains ``system:masters`` without ``allow_masters``.
            ConfigurationError: if a ClusterRole does not exist or a Role has no namespace.
        """
        if _MASTERS_GROUP in groups and not allow_masters:
            raise ValueError(
                f"{name} would be a member of {_MASTERS_GROUP}, which bypasses RBAC: set roles or rules, "
                "or allow_masters=True"
            )
        self._run(self._user_rbac.replace(name, roles, rules, namespace))
        if self._control_plane is not None and len(name) <= _MAX_COMMON_NAME_LENGTH:
            config = self._control_plane.config_for_user(name, groups)
        else:
            config = replace(self.config, impersonate=Impersonation(user=name, groups=tuple(groups)))
        # Usernames may contain characters that are invalid in file names.
        file = f"user-{hashlib.sha256(name.encode()).hexdigest()[:32]}.kubeconfig"
        return AuthenticatedUser(name, tuple(groups), config, self._home.write(file, build_kubeconfig(config, name)))

    @contextmanager
    def namespace(self, name_prefix: str = "test") -> Generator[str]:
        """Create a namespace for the block and yield its name.

        At the end the namespace and its objects are deleted, including objects with finalizers. In an existing
        cluster the controller manager deletes them asynchronously.

        Args:
            name_prefix: prefix of the name. A random suffix follows.
        """
        name = self._run(create_namespace(self._client, name_prefix))
        try:
            yield name
        finally:
            discovery = self._discovery if self._control_plane is not None else None
            self._run(delete_namespace(self._client, name, discovery))

    def install_crds(self, *sources: ManifestSource) -> None:
        """Install CustomResourceDefinitions and wait until they are served.

        Existing definitions are updated. Conversion webhooks of Services are redirected to ``webhooks``.

        Args:
            sources: custom resource types, manifests, objects, and paths of files or directories.

        Raises:
            ConfigurationError: if a source does not exist, is unreadable or contains no CustomResourceDefinition.
            ApiError: if the API server rejects a definition.
            SteersmanError: if a definition is not served within 30 seconds. The message contains its conditions.
        """
        self._run(self._installer.install_crds(sources, lambda: self.webhooks))

    def install_webhooks(self, *sources: ManifestSource) -> None:
        """Install webhook configurations and wait until they are effective.

        Webhooks of Services are redirected to ``webhooks`` with their path. Webhooks with a URL remain unchanged.
        The webhook server of the test should listen when this method returns.

        Args:
            sources: manifests, objects, and paths of files or directories.

        Raises:
            ConfigurationError: if a source does not exist, is unreadable or contains no webhook configuration.
            ApiError: if the API server rejects a configuration.
            SteersmanError: if the configurations are not effective within 30 seconds.
        """
        self._run(self._installer.install_webhooks(sources, self.webhooks))

    def uninstall_webhooks(self, *sources: ManifestSource) -> None:
        """Delete webhook configurations, if they exist.

        Args:
            sources: see ``install_webhooks``.
        """
        for manifest in collect_manifests(sources, WEBHOOK_KINDS):
            self._run(self._installer.delete(manifest))

    def stop(self) -> None:
        """Stop the processes and remove the directory. May be called again and after a fork.

        In an existing cluster it deletes installed objects that did not exist before. CustomResourceDefinitions
        remain, because their deletion would delete objects of other users.
        """
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.stop)
        if self._control_plane is not None:
            self._control_plane.stop()
        elif "_installer" in vars(self):
            try:
                self._run(asyncio.wait_for(self._installer.uninstall(), _CLEANUP_TIMEOUT_SECONDS))
            except (SteersmanError, TimeoutError, RuntimeError) as error:
                log.warning("installed objects remain in the cluster", server=self.server, error=str(error))
        if "_admin_client" in vars(self):
            self._admin_client.close()
        if self._webhook_port_reservation is not None:
            self._webhook_port_reservation.close()
        self._home.remove()

    # Runs as administrator on a separate event loop, because the test may run its own.

    @cached_property
    def _admin_client(self) -> SyncClient:
        return SyncClient(self.config, field_manager="envtest")

    @property
    def _client(self) -> Client:
        return self._admin_client.client

    @cached_property
    def _discovery(self) -> Discovery:
        return Discovery(self._client)

    @cached_property
    def _installer(self) -> ResourceInstaller:
        return ResourceInstaller(self._client)

    @cached_property
    def _user_rbac(self) -> UserRbac:
        return UserRbac(self._client, self._installer, has_aggregation=self._control_plane is None)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._admin_client.run(coroutine)


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise ConfigurationError("cryptography is missing: install the dependencies of steersman-testing")
