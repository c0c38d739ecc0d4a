"""Command-line flags of an operator, named as in kubebuilder's scaffold.

``with_manager_flags`` adds them to the options of a typer command::

    app = typer.Typer()

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags, greeting: str = "hello") -> None:
        flags.run(setup, name="shop-operator")

``steersman.run`` does both for an operator without a command of its own.

This module needs typer, which the manager itself does not import.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from steersman.client import ClusterConfig, Transport, connect, load_config
from steersman.errors import ConfigurationError, LeadershipLost, SteersmanError
from steersman.manager.leader_election import LeaderElection
from steersman.manager.manager import Manager
from steersman.manager.options import ManagerOptions
from steersman.manager.process_exit import CLEANUP_SECONDS, ExitDeadline
from steersman.observability.logging import LogFormat, LogLevel, configure_logging

if TYPE_CHECKING:
    from steersman.webhook import WebhookServerOptions

T = TypeVar("T")

_WEBHOOKS_PARAMETER = inspect.Parameter(
    "webhooks",
    inspect.Parameter.KEYWORD_ONLY,
    default=True,
    annotation=Annotated[bool, typer.Option(help="Serve the webhooks.")],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFlags:
    """Values of the command-line flags. Names and meanings are those of kubebuilder where it has the flag."""

    metrics_bind_address: Annotated[
        str, typer.Option(help="The address the metrics endpoint binds to. Use 0 to disable the metrics service.")
    ] = ":8080"
    metrics_secure: Annotated[
        bool,
        typer.Option(
            "--metrics-secure/--no-metrics-secure",
            help="Serve the metrics endpoint over HTTPS, with authentication and authorization.",
        ),
    ] = False
    metrics_cert_path: Annotated[
        str, typer.Option(help="The directory that contains the metrics server certificate, tls.crt and tls.key.")
    ] = ""
    health_probe_bind_address: Annotated[
        str,
        typer.Option(help="The address the probe endpoint binds to. Use 0 to disable it."),
    ] = ":8081"
    debug_bind_address: Annotated[
        str,
        typer.Option(help="The address the debug endpoint binds to, such as 127.0.0.1:8082. Use 0 to disable it."),
    ] = "0"
    webhook_host: Annotated[
        str,
        typer.Option(help="The host the webhook server binds to. Defaults to the setting of the operator."),
    ] = ""
    webhook_port: Annotated[
        int | None,
        typer.Option(
            help="The port the webhook server binds to. Defaults to the setting of the operator, usually 9443.",
            max=65535,
        ),
    ] = None
    webhook_cert_path: Annotated[
        str,
        typer.Option(
            help="The directory that contains the webhook certificate, such as a Secret mounted from cert-manager. "
            "Defaults to a certificate that the operator issues and rotates itself."
        ),
    ] = ""
    webhook_cert_name: Annotated[str, typer.Option(help="The name of the webhook certificate file.")] = "tls.crt"
    webhook_cert_key: Annotated[str, typer.Option(help="The name of the webhook key file.")] = "tls.key"
    webhook_service: Annotated[
        str,
        typer.Option(help="The NAMESPACE/NAME of the webhook Service. Defaults to the setting of the operator."),
    ] = ""
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Enable leader election, which ensures that only one replica is active.",
        ),
    ] = False
    leader_election_id: Annotated[
        str, typer.Option(help="The name of the Lease. Defaults to the name of the operator.")
    ] = ""
    leader_election_namespace: Annotated[
        str,
        typer.Option(
            help="The namespace of the Lease. Defaults to the namespace of the pod or of the kubeconfig context.",
        ),
    ] = ""
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespaces",
            "--namespace",
            help="The namespaces to watch, as a comma-separated list or a repeated flag. Defaults to all namespaces.",
        ),
    ] = None
    kubeconfig: Annotated[str, typer.Option(help="The path of a kubeconfig. Only required if out-of-cluster.")] = ""
    context: Annotated[
        str,
        typer.Option(help="The kubeconfig context to use. Defaults to the current context."),
    ] = ""
    graceful_shutdown_timeout: Annotated[
        float, typer.Option(help="The time in seconds that running reconciles have to complete at shutdown.", min=0)
    ] = 30.0
    log_level: Annotated[
        LogLevel,
        typer.Option(
            "--log-level", "--zap-log-level", help="The minimum level of log lines: debug, info, warning or error."
        ),
    ] = "info"
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", "--zap-encoder", help="The format of log lines: json or console."),
    ] = "json"

    def config(self) -> ClusterConfig:
        """Cluster and credentials to use. Raises ConfigurationError."""
        return load_config(self.kubeconfig or None, context=self.context or None)

    def options(self, name: str, *, default_namespace: str = "default", **overrides: Any) -> ManagerOptions:
        """Settings of the manager.

        Args:
            name: name of the operator: field manager, source of Events, and default name of the Lease.
            default_namespace: namespace of the Lease if no flag sets it; ``config().namespace`` is that of the pod.
            overrides: settings that have no flag, such as ``tracing``. They take precedence over flags, except that
                webhook flags override fields of ``webhooks``.

        Raises:
            ConfigurationError: a flag has an invalid value.
        """
        lease, namespace = self.leader_election_id or name, self.leader_election_namespace or default_namespace
        election = LeaderElection(name=lease, namespace=namespace) if self.leader_elect else None
        options = ManagerOptions(
            name=name,
            instance=os.environ.get("POD_NAME", name),
            namespaces=self._namespaces(),
            leader_election=election,
            health_probe_bind_address=self.health_probe_bind_address,
            metrics_bind_address=self.metrics_bind_address,
            debug_bind_address=self.debug_bind_address,
            metrics_secure=self.metrics_secure,
            metrics_cert_path=self.metrics_cert_path,
            graceful_shutdown_timeout=self.graceful_shutdown_timeout,
        )
        if "webhooks" in overrides:
            webhooks = overrides["webhooks"]
            overrides["webhooks"] = None if webhooks is None else self._webhook_options(webhooks)
            # None switches them off. If the operator does not mention them, the manager warns.
            overrides.setdefault("serve_webhooks", webhooks is not None)
        return replace(options, **overrides)

    def _webhook_options(self, options: WebhookServerOptions) -> WebhookServerOptions:
        """``options``, with fields replaced by flags that are set."""
        if self.webhook_service:
            namespace, slash, service = self.webhook_service.partition("/")
            if not (namespace and slash and service):
                raise ConfigurationError(f"--webhook-service {self.webhook_service!r} is invalid: use NAMESPACE/NAME")
            options = replace(options, service=service, namespace=namespace, url="")
        host, _, port = options.bind_address.rpartition(":")
        port = port if self.webhook_port is None else str(self.webhook_port)
        options = replace(options, bind_address=f"{self.webhook_host or host}:{port}")
        if not self.webhook_cert_path:
            return options
        certificate = {"cert_name": self.webhook_cert_name, "cert_key": self.webhook_cert_key}
        return replace(options, cert_path=self.webhook_cert_path, **certificate)

    def run(self, setup: Callable[[Manager], None], *, name: str, **overrides: Any) -> None:
        """Run a manager until SIGTERM, on uvloop if it is installed.

        An error that the user can fix is printed in one line, and the exit code is 1.

        Args:
            setup: adds controllers and webhooks to the manager.
            name: see ``options``.
            overrides: see ``options``.
        """
        configure_logging(self.log_level, self.log_format)
        try:
            config = self.config()
            options = self.options(name, default_namespace=config.namespace, **overrides)
            with ExitDeadline() as deadline, asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_run(connect(config), options, setup, deadline))
        except LeadershipLost:
            # The manager has logged it. It needs no action, since another replica is the leader.
            sys.exit(1)
        except SteersmanError as error:
            typer.echo(f"{name}: {error}", err=True)
            sys.exit(1)

    def _namespaces(self) -> tuple[str, ...]:
        names = (part.strip() for value in self.namespaces or () for part in value.split(","))
        return tuple(dict.fromkeys(part for part in names if part))


def with_manager_flags(command: Callable[..., T]) -> Callable[..., T]:
    """Add the manager flags to a typer command.

    The first parameter of the command takes ``ManagerFlags``. A flag is not added if the command has an option of the
    same name. ``--version`` prints the versions of the operator's distribution and of Steersman.
    """
    flags_parameter, *command_parameters = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, include_extras=True)
    flags = get_type_hints(ManagerFlags, include_extras=True)

    flag_fields = [field for field in fields(ManagerFlags) if field.name not in {p.name for p in command_parameters}]

    version = [] if "version" in hints else [_version_parameter(command.__module__)]

    def run(**arguments: Any) -> T:
        for parameter in version:
            del arguments[parameter.name]
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
    # typer reads the signature and the annotations.
    parameters = [*own_parameters, *flag_parameters, *version]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def run_command(
    setup: Callable[..., None] | str, *, name: str, webhooks: WebhookServerOptions | str | None, **options: Any
) -> None:
    """Run the command of an operator: see ``steersman.run``."""
    try:
        setup_function: Callable[..., None] = _load(setup) if isinstance(setup, str) else setup
        served = _load(webhooks) if isinstance(webhooks, str) else webhooks
    except ConfigurationError as error:
        typer.echo(f"{name}: {error}", err=True)
        sys.exit(1)

    def command(flags: ManagerFlags, **values: Any) -> None:
        serves = values.pop(_WEBHOOKS_PARAMETER.name, True)
        flags.run(partial(setup_function, **values), name=name, webhooks=served if serves else None, **options)

    _, *parameters = inspect.signature(setup_function).parameters.values()
    if parameters:
        # Not without need: the module may import Manager for type checkers only.
        _, *parameters = inspect.signature(setup_function, eval_str=True).parameters.values()
    if served is not None:
        parameters = [_WEBHOOKS_PARAMETER, *parameters]
    flags_parameter = inspect.Parameter("flags", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ManagerFlags)
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature([flags_parameter, *keywords])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (flags_parameter, *keywords)}
    command.__doc__ = "Run the operator until SIGTERM."
    command.__module__ = getattr(setup_function, "__module__", None) or __name__
    # Tables of rich truncate long options at 80 columns.
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(with_manager_flags(command))
    app(prog_name=name)


def _load(import_path: str) -> Any:
    """Import ``module:attribute``.

    Raises:
        ConfigurationError: the import path is malformed, or the module has no such attribute.
    """
    module, _, attribute = import_path.partition(":")
    if not (module and attribute):
        raise ConfigurationError(f"{import_path!r} is not an import path: use the form package.module:function")
    loaded = importlib.import_module(module)
    if not hasattr(loaded, attribute):
        raise ConfigurationError(f"module {module} has no {attribute!r}: define it, or correct {import_path!r}")
    return getattr(loaded, attribute)


def _version_parameter(module: str) -> inspect.Parameter:
    """Return the option ``--version`` of the operator that defines ``module``."""

    def print_versions(wanted: bool) -> None:
        if wanted:
            typer.echo(_versions(module.partition(".")[0]))
            raise typer.Exit

    option = typer.Option("--version", callback=print_versions, is_eager=True, help="Print the version.")
    return inspect.Parameter(
        "version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )


def _versions(package: str) -> str:
    """Return the versions of the distribution that has ``package`` and of Steersman."""
    from importlib import metadata

    # The metadata of an editable installation does not list packages. Its name is that of the package, as a rule.
    names = [*metadata.packages_distributions().get(package, [package.replace("_", "-")]), "steersman"]
    lines: list[str] = []
    for name in dict.fromkeys(names):
        with suppress(metadata.PackageNotFoundError):
            lines.append(f"{name} {metadata.version(name)}")
    return "\n".join(lines)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop if ``steersman[uvloop]`` is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _run(
    connection: AbstractAsyncContextManager[Transport],
    options: ManagerOptions,
    setup: Callable[[Manager], None],
    deadline: ExitDeadline,
) -> None:
    async with connection as transport:
        manager = Manager(transport, options)
        setup(manager)
        follow_task = asyncio.create_task(deadline.follow(manager), name="exit deadline")
        try:
            await manager.run_until_signalled()
        finally:
            follow_task.cancel()
            deadline.set(CLEANUP_SECONDS)
