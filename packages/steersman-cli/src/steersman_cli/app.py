"""The ``steersman`` command and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from steersman_cli.lazy_group import LazyCommand, LazyGroup

_OPERATOR_OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "options_metavar": "[OPTIONS] [OPTIONS OF THE OPERATOR]",
}


class _Commands(LazyGroup):
    """The commands, with the first sentence of their help."""

    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {
        "init": LazyCommand("steersman_cli.init:init", "Create a project in the current directory."),
        "create": LazyCommand("steersman_cli.create:group", "Add kinds, controllers and webhooks to a project."),
        "manifests": LazyCommand(
            "steersman_cli.manifests:manifests", "Write CRDs, RBAC and webhook configurations to config/."
        ),
        "install": LazyCommand("steersman_cli.deploy:install", "Install the CRDs of the project."),
        "uninstall": LazyCommand("steersman_cli.deploy:uninstall", "Delete the CRDs of the project."),
        "dev": LazyCommand(
            "steersman_cli.dev.command:dev",
            "Run the operator and an API server on this machine until Ctrl-C.",
            _OPERATOR_OPTIONS,
        ),
        "run": LazyCommand(
            "steersman_cli.run:run", "Run the operator on this machine until Ctrl-C.", _OPERATOR_OPTIONS
        ),
        "build": LazyCommand("steersman_cli.build:build", "Build the project's Containerfile, or another one."),
        "deploy": LazyCommand("steersman_cli.deploy:deploy", "Deploy the operator from config/default."),
        "undeploy": LazyCommand("steersman_cli.deploy:undeploy", "Delete the objects that deploy applied."),
        "installer": LazyCommand(
            "steersman_cli.installer:installer", "Write the manifests of config/default into one file."
        ),
        "chart": LazyCommand("steersman_cli.chart:chart", "Write a Helm chart of the manifests in config/."),
        "bundle": LazyCommand(
            "steersman_cli.bundle:bundle", "Write an OLM bundle of config/default, and its Containerfile."
        ),
        "sbom": LazyCommand("steersman_cli.sbom:sbom", "Write the Python packages of the image as a CycloneDX SBOM."),
        "update": LazyCommand("steersman_cli.update:update", "Merge changes of the templates into the project."),
        "migrate": LazyCommand(
            "steersman_cli.migrate:group", "Migrate stored objects to another version, or from Kopf."
        ),
        "models": LazyCommand("steersman_cli.models:models", "Write typed Python modules of the kinds in CRDs."),
        "doctor": LazyCommand("steersman_cli.doctor:doctor", "Diagnose the project on a cluster."),
        "explain": LazyCommand("steersman_cli.explain:explain", "Show why objects were reconciled."),
        "top": LazyCommand("steersman_cli.top.command:top", "Show the load of a running operator."),
        "crd": LazyCommand("steersman_cli.crd:group", "Compare custom resource definitions."),
        "rbac": LazyCommand("steersman_cli.rbac:group", "Check RBAC roles."),
        "testing": LazyCommand("steersman_cli.testing:group", "Serve an in-memory API server."),
        "version": LazyCommand("steersman_cli.app:version", "Print the version."),
    }


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # tables of rich truncate long options at 80 columns
)
"""The ``steersman`` command, as a typer application."""


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def steersman(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Write Kubernetes operators in typed, async Python.

    Example: steersman init --domain example.com --repo example.com/shop

    Example: steersman create api --group shop --version v1alpha1 --kind Cart

    Example: steersman dev
    """


def version() -> None:
    """Print the version.

    Example: steersman version
    """
    from importlib.metadata import version as version_of

    typer.echo(version_of("steersman"))


def main() -> None:
    """Run the command."""
    # As with `python -m`: the modules of the operator are in the working directory.
    sys.path.insert(0, "")
    app(prog_name="steersman")
