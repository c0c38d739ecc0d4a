"""An API server for tests, of our own or one that is there, and what tests want of it."""

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
from steersman.meta.manifests import Manifest
from steersman.observability.logging import get_logger
from steersman_testing.envtest.binaries import find_binaries
from steersman_testing.envtest.control_plane import ControlPlane
from steersman_testing.envtest.directory import EnvironmentDirectory
from steersman_testing.envtest.installer import ResourceInstaller
from steersman_testing.envtest.kubeconfig import build_kubeconfig
from steersman_testing.envtest.namespaces import create_namespace, delete_namespace
from steersman_testing.envtest.user_rbac import RoleReference, UserRbac
from steersman_testing.envtest.webhooks import LocalWebhookServing, prepare_local_serving
from steersman_testing.manifests import ManifestSource

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
    """Somebody who may do what RBAC says and nothing else. Made by ``Envtest.user``.

    Attributes:
        name: what the API server calls them.
        groups: of which they are a member, ``system:authenticated`` aside.
        config: how they connect.
        kubeconfig: the file for kubectl, or for an operator in a process of its own.
    """

    name: str
    groups: tuple[str, ...]
    config: ClusterConfig
    kubeconfig: Path


class Envtest:
    """A running API server. Made by ``start``; ends with the ``with`` block, with ``stop``, or with the interpreter.

    Environments do not meet: each has its own directory, ports and certificates, so tests may run in parallel.

    Attributes:
        directory: everything of this environment, logs included; removed at the end.
        config: how to connect as administrator.
        kubeconfig: a kubeconfig file of the administrator.
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
        """Starts etcd and kube-apiserver and waits until they are ready; or takes the cluster that is there.

        Args:
            assets: see ``find_binaries``.
            version: of Kubernetes, such as ``1.36``; any where it is empty.
            arguments: more command-line arguments for kube-apiserver, such as ``{"feature-gates": "X=true"}``.
            existing: use the cluster that ``load_config`` finds, and start nothing; then ``assets``, ``version`` and
                ``arguments`` do not count. None: if ``$USE_EXISTING_CLUSTER`` is ``true``.
            webhook_host: under which address or name the API server reaches this machine; an existing cluster needs
                another than the default.
            timeout: seconds.

        Raises:
            ConfigurationError: programs or cluster were not found, or ``steersman[testing]`` is not installed.
            SteersmanError: they did not start; the end of their output is part of the message.
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
        """The URL of the API server."""
        return self.config.server

    @property
    def kubeconfig_dict(self) -> dict[str, Any]:
        """The administrator's kubeconfig."""
        return yaml.safe_load(self.kubeconfig.read_text())

    @property
    def control_plane(self) -> ControlPlane:
        """etcd and kube-apiserver themselves: to kill, to pause, to have them forget.

        Raises:
            SteersmanError: they are not ours.
        """
        if self._control_plane is None:
            raise SteersmanError(f"{self.server} is a cluster that was there: this needs an API server of our own")
        return self._control_plane

    @cached_property
    def webhooks(self) -> LocalWebhookServing:
        """Where the API server calls webhooks: host, port and certificates for the server of the test.

        Raises:
            ConfigurationError: ``steersman[testing]`` is not installed.
        """
        _require_cryptography()
        serving, self._webhook_port_reservation = prepare_local_serving(self._home, self._webhook_host)
        return serving

    @asynccontextmanager
    async def client(
        self, user: AuthenticatedUser | None = None, *, field_manager: str = "test"
    ) -> AsyncGenerator[Client]:
        """A client during the block.

        Args:
            user: whose; None: the administrator's.
            field_manager: the name under which writes own their fields.
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
        """A user, who from now on may do what this says, whatever former calls said of them.

        They have a client certificate of their own; the administrator acts as them in an existing cluster, and where
        the name has more than the 64 characters of a certificate's common name (X.520).

        Args:
            name: such as ``jane``, or ``system:serviceaccount:shop:till``.
            groups: of which they are a member. RBAC that others make for these, or for the user, counts as well.
            roles: names of ClusterRoles that exist, such as ``view``, or manifests of ClusterRoles and Roles, which
                are installed. A Role counts in its own namespace.
            rules: of RBAC in wire form, as ``policy_rules`` makes them.
            namespace: where ClusterRoles and rules count; everywhere, where it is empty.
            allow_masters: permit the group ``system:masters``, for whom no rule counts.

        Raises:
            ValueError: a member of ``system:masters`` was not asked for expressly.
            ConfigurationError: there is no such ClusterRole, or a Role has no namespace.
        """
        if _MASTERS_GROUP in groups and not allow_masters:
            raise ValueError(
                f"{name} would be a member of {_MASTERS_GROUP} and pass every check, so that a test of rights says "
                "nothing: choose roles or rules, or say allow_masters=True"
            )
        self._run(self._user_rbac.replace(name, roles, rules, namespace))
        if self._control_plane is not None and len(name) <= _MAX_COMMON_NAME_LENGTH:
            config = self._control_plane.config_for_user(name, groups)
        else:
            config = replace(self.config, impersonate=Impersonation(user=name, groups=tuple(groups)))
        # Names may have characters that no file name has, and more of them.
        file = f"user-{hashlib.sha256(name.encode()).hexdigest()[:32]}.kubeconfig"
        return AuthenticatedUser(name, tuple(groups), config, self._home.write(file, build_kubeconfig(config, name)))

    @contextmanager
    def namespace(self, name_prefix: str = "test") -> Generator[str]:
        """A new namespace during the block; gives its name, which begins with ``words``.

        At the end everything in it is deleted, finalizers or not, and so is the namespace. In an existing cluster the
        controller manager does that, and nobody waits for it.
        """
        name = self._run(create_namespace(self._client, name_prefix))
        try:
            yield name
        finally:
            discovery = self._discovery if self._control_plane is not None else None
            self._run(delete_namespace(self._client, name, discovery))

    def install_crds(self, *sources: ManifestSource) -> None:
        """Installs CustomResourceDefinitions and returns once the API server serves them.

        What is there already is changed. Conversion webhooks behind a service are called at ``webhooks`` instead.

        Args:
            sources: custom resource types, manifests, objects, and paths of files or directories.

        Raises:
            ConfigurationError: a source does not exist, cannot be read, or has no CustomResourceDefinition.
            ApiError: the server refuses one.
            SteersmanError: one is not served after half a minute; says what its conditions say.
        """
        self._run(self._installer.install_crds(sources, lambda: self.webhooks))

    def install_webhooks(self, *sources: ManifestSource) -> None:
        """Installs MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

        Webhooks behind a service are called at ``webhooks`` instead, under their path; those with a URL stay as they
        are. When this returns, the API server calls them: the server of the test should listen by then.

        Args:
            sources: manifests, objects, and paths of files or directories.

        Raises:
            ConfigurationError: a source does not exist, cannot be read, or has no such configuration.
            ApiError: the server refuses one.
            SteersmanError: the API server does not heed them after half a minute.
        """
        self._run(self._installer.install_webhooks(sources, self.webhooks))

    def stop(self) -> None:
        """Ends what was started and removes the directory. May be called again, and in a forked process.

        In an existing cluster it deletes what was installed and was not there before, definitions aside: objects of
        others would go with them.
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
                log.warning("not everything that was installed was deleted", server=self.server, error=str(error))
        if "_admin_client" in vars(self):
            self._admin_client.close()
        if self._webhook_port_reservation is not None:
            self._webhook_port_reservation.close()
        self._home.remove()

    # What it does, it does as the administrator, on an event loop of its own: tests may run one, too.

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
        raise ConfigurationError("cryptography is missing: install steersman[testing]")
