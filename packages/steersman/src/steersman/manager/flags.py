"""The command line of an operator's process: the flags that kubebuilder's scaffold gives to a Go operator.

``with_manager_flags`` gives them to a typer command, beside those that the command has of its own::

    app = typer.Typer()

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags, greeting: str = "hello") -> None:
        flags.run(setup, name="shop-operator")

The manager itself does not import this module, nor typer.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from steersman.client import ClusterConfig, Transport, connect, load_config
from steersman.errors import ConfigurationError, LeadershipLost, SteersmanError
from steersman.manager.leader_election import LeaderElection
from steersman.manager.manager import Manager
from steersman.manager.options import ManagerOptions
from steersman.observability.logging import LogFormat, LogLevel, configure_logging

if TYPE_CHECKING:
    from steersman.webhook import WebhookServerOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFlags:
    """What a user said on the command line. Names and meanings are kubebuilder's where it has them."""

    metrics_bind_address: Annotated[
        str, typer.Option(help="host:port of /metrics, such as :8080; 0 serves none.")
    ] = ":8080"
    metrics_secure: Annotated[
        bool,
        typer.Option(
            "--metrics-secure/--no-metrics-secure",
            help="Serve metrics by TLS, to whom the API server knows and allows it.",
        ),
    ] = False
    metrics_cert_path: Annotated[str, typer.Option(help="The directory of tls.crt and tls.key for it.")] = ""
    health_probe_bind_address: Annotated[
        str,
        typer.Option(help="host:port of /healthz and /readyz, such as :8081; 0: none."),
    ] = ":8081"
    debug_bind_address: Annotated[
        str,
        typer.Option(help="host:port of /debug, such as 127.0.0.1:8082: why each reconcile ran; 0: none."),
    ] = "0"
    webhook_port: Annotated[
        int | None,
        typer.Option(
            help="Port of the webhooks, if there are any; 9443 unless the operator says otherwise.", max=65535
        ),
    ] = None
    webhook_cert_path: Annotated[
        str,
        typer.Option(
            help="The directory of the webhooks' certificate, such as a mounted Secret of cert-manager; the operator "
            "keeps one of its own unless given."
        ),
    ] = ""
    webhook_cert_name: Annotated[str, typer.Option(help="The file of the certificate in it.")] = "tls.crt"
    webhook_cert_key: Annotated[str, typer.Option(help="The file of the private key in it.")] = "tls.key"
    webhook_service: Annotated[
        str,
        typer.Option(help="NAMESPACE/NAME of the Service before the webhooks; what the operator says unless given."),
    ] = ""
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Let one of several replicas work, and the others stand by.",
        ),
    ] = False
    leader_election_id: Annotated[str, typer.Option(help="Name of the Lease; the operator's unless given.")] = ""
    leader_election_namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the Lease; the pod's or context's unless given.",
        ),
    ] = ""
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespaces",
            "--namespace",
            help="The only namespaces to watch, separated by commas or given several times; all unless given.",
        ),
    ] = None
    kubeconfig: Annotated[str, typer.Option(help="A kubeconfig file, outside a cluster.")] = ""
    context: Annotated[
        str,
        typer.Option(help="A context of the kubeconfig; the current one unless given."),
    ] = ""
    graceful_shutdown_timeout: Annotated[
        float, typer.Option(help="Seconds that running work gets at shutdown.", min=0)
    ] = 30.0
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", "--zap-log-level", help="The least that is logged."),
    ] = "info"
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", "--zap-encoder", help="json or console."),
    ] = "json"

    def config(self) -> ClusterConfig:
        """Which cluster, and as whom. Raises ConfigurationError."""
        return load_config(self.kubeconfig or None, context=self.context or None)

    def options(self, name: str, *, default_namespace: str = "default", **overrides: Any) -> ManagerOptions:
        """The manager's settings.

        Args:
            name: the operator's: of its field manager, its Events, and its Lease unless a flag names another.
            default_namespace: of the Lease where no flag names one; ``config().namespace`` is the pod's own.
            overrides: settings without a flag, such as ``tracing``. They win, except over the flags for ``webhooks``.

        Raises:
            ConfigurationError: a flag says what cannot be.
        """
        election = LeaderElection(
            name=self.leader_election_id or name, namespace=self.leader_election_namespace or default_namespace
        )
        options = ManagerOptions(
            name=name,
            instance=os.environ.get("POD_NAME", name),
            namespaces=self._namespaces(),
            leader_election=election if self.leader_elect else None,
            health_probe_bind_address=self.health_probe_bind_address,
            metrics_bind_address=self.metrics_bind_address,
            debug_bind_address=self.debug_bind_address,
            metrics_secure=self.metrics_secure,
            metrics_cert_path=self.metrics_cert_path,
            graceful_shutdown_timeout=self.graceful_shutdown_timeout,
        )
        if webhook_options := overrides.pop("webhooks", None):
            overrides["webhooks"] = self._webhook_options(webhook_options)
        return replace(options, **overrides)

    def _webhook_options(self, options: WebhookServerOptions) -> WebhookServerOptions:
        """``serving`` where flags say that it is."""
        if self.webhook_service:
            namespace, slash, service = self.webhook_service.partition("/")
            if not (namespace and slash and service):
                raise ConfigurationError(f"--webhook-service {self.webhook_service!r} is not NAMESPACE/NAME")
            options = replace(options, service=service, namespace=namespace, url="")
        if self.webhook_port is not None:
            host = options.bind_address.rpartition(":")[0]
            options = replace(options, bind_address=f"{host}:{self.webhook_port}")
        if not self.webhook_cert_path:
            return options
        certificate = {"cert_name": self.webhook_cert_name, "cert_key": self.webhook_cert_key}
        return replace(options, cert_path=self.webhook_cert_path, **certificate)

    def run(self, setup: Callable[[Manager], None], *, name: str, **overrides: Any) -> None:
        """Runs a manager until SIGTERM, and ends the process with code 1 and one line for what a user can mend.

        Args:
            setup: adds controllers to the manager.
            name: as for ``options``.
            overrides: as for ``options``.
        """
        configure_logging(self.log_level, self.log_format)
        try:
            config = self.config()
            options = self.options(name, default_namespace=config.namespace, **overrides)
            asyncio.run(_run(connect(config), options, setup))
        except LeadershipLost:
            # The manager's log says so, and a user has nothing to mend: another replica works.
            sys.exit(1)
        except SteersmanError as error:
            typer.echo(f"{name}: {error}", err=True)
            sys.exit(1)

    def _namespaces(self) -> tuple[str, ...]:
        names = (part.strip() for value in self.namespaces or () for part in value.split(","))
        return tuple(dict.fromkeys(part for part in names if part))


def with_manager_flags(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a typer command, whose first parameter takes ``ManagerFlags``, an option for each of them.

    Where the command has an option of the same name, that is the command's alone.
    """
    flags_parameter, *command_parameters = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, include_extras=True)
    flags = get_type_hints(ManagerFlags, include_extras=True)

    flag_fields = [field for field in fields(ManagerFlags) if field.name not in {p.name for p in command_parameters}]

    def run(**arguments: Any) -> T:
        flag_values = {field.name: arguments.pop(field.name) for field in flag_fields}
        return command(**{flags_parameter.name: ManagerFlags(**flag_values)}, **arguments)

    flag_parameters = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=flags[field.name]
        )
        for field in flag_fields
    ]
    own_parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(p.name, p.annotation))
        for p in command_parameters
    ]
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    # What typer reads instead of the code.
    run.__signature__ = inspect.Signature([*own_parameters, *flag_parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own_parameters, *flag_parameters)}
    return run


async def _run(
    connection: AbstractAsyncContextManager[Transport], options: ManagerOptions, setup: Callable[[Manager], None]
) -> None:
    async with connection as transport:
        manager = Manager(transport, options)
        setup(manager)
        await manager.run_until_signalled()
