"""Manifests, webhooks and options of the operator in ``steersman dev``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from steersman.errors import SteersmanError
from steersman_cli.debug_endpoint import DEBUG_PORT
from steersman_cli.local_operator import loopback_address
from steersman_cli.manifests import generate_in_subprocess
from steersman_manifests.manifest_files import Manifest

if TYPE_CHECKING:
    from steersman_cli.project import Project
    from steersman_testing.envtest import Envtest

# The defaults of the operator. Other programs may use these ports.
_METRICS_PORT, _PROBE_PORT = 8080, 8081


class DevSession:
    """Keeps the API server equal to the manifests of the project.

    Args:
        project: project of the operator.
        environment: API server, and addresses of webhooks.
        kubeconfig: absolute path of the kubeconfig.
        debug_address: address of the operator's debug endpoint.
        arguments: options of the user for the operator.
    """

    def __init__(
        self, project: Project, environment: Envtest, kubeconfig: Path, debug_address: str, arguments: tuple[str, ...]
    ) -> None:
        self._project = project
        self._environment = environment
        self._kubeconfig = kubeconfig
        self._metrics_address = loopback_address(_METRICS_PORT)
        self._probe_address = loopback_address(_PROBE_PORT)
        self._addresses = (
            *("--debug-bind-address", debug_address),
            *("--metrics-bind-address", self._metrics_address),
            *("--health-probe-bind-address", self._probe_address),
        )
        self._debug_address = debug_address
        self._arguments = arguments
        self._installed: tuple[list[Manifest], list[Manifest]] = ([], [])
        self._announced = False

    def prepare(self) -> list[str]:
        """Install new manifests, and return the options of the operator.

        An error is printed, so that the operator starts with the manifests that are installed.
        """
        generate_in_subprocess(self._project)
        try:
            self._install()
        except SteersmanError as error:
            typer.echo(f"steersman: manifests not installed: {error}", err=True)
        if not self._announced:
            self._announced = True
            self._announce()
        return ["--kubeconfig", str(self._kubeconfig), *self._addresses, *self._webhook_options(), *self._arguments]

    def _install(self) -> None:
        crds, webhooks = self._project.crd_manifests(), self._project.webhook_manifests()
        installed_crds, installed_webhooks = self._installed
        if crds and crds != installed_crds:
            self._environment.install_crds(*crds)
        kept = {(each["kind"], each["metadata"]["name"]) for each in webhooks}
        removed = [each for each in installed_webhooks if (each["kind"], each["metadata"]["name"]) not in kept]
        if removed:
            self._environment.uninstall_webhooks(*removed)
        if webhooks and webhooks != installed_webhooks:
            self._environment.install_webhooks(*webhooks)
        self._installed = (crds, webhooks)

    def _webhook_options(self) -> list[str]:
        if "webhooks" not in self._project.settings:
            return []
        if not self._has_webhooks():
            return ["--no-webhooks"]
        serving = self._environment.webhooks
        return [
            *("--webhook-host", serving.host, "--webhook-port", str(serving.port)),
            *("--webhook-cert-path", str(serving.directory)),
        ]

    def _has_webhooks(self) -> bool:
        crds, webhooks = self._installed
        return bool(webhooks) or any(c["spec"].get("conversion", {}).get("strategy") == "Webhook" for c in crds)

    def _announce(self) -> None:
        typer.echo(f"API server      {self._environment.server}")
        typer.echo(f"Debug endpoint  http://{self._debug_address}/debug")
        typer.echo(f"Metrics         http://{self._metrics_address}/metrics")
        typer.echo(f"Probes          http://{self._probe_address}/readyz")
        if self._has_webhooks():
            typer.echo(f"Webhooks        {self._environment.webhooks.url('')}")
        url = "" if self._debug_address.endswith(f":{DEBUG_PORT}") else f" --url http://{self._debug_address}"
        names = [f"{c['spec']['names']['plural']}.{c['spec']['group']}" for c in self._installed[0]]
        commands = [
            f"export KUBECONFIG={self._kubeconfig}",
            *(["kubectl apply -k config/samples"] if (self._project.root / "config" / "samples").is_dir() else []),
            *(f"kubectl get {name}" for name in names),
            f"steersman top{url}",
        ]
        typer.echo("\nIn another terminal:\n\n  " + "\n  ".join(commands) + "\n\nPress Ctrl-C to stop.\n")
