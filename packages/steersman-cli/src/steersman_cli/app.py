"""The ``steersman`` command and its subcommands."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of

import typer

from steersman_cli import crd, create, deploy, rbac, testing
from steersman_cli.build import build
from steersman_cli.bundle import bundle
from steersman_cli.chart import chart
from steersman_cli.dev import dev
from steersman_cli.doctor import doctor
from steersman_cli.explain import explain
from steersman_cli.init import init
from steersman_cli.installer import installer
from steersman_cli.manifests import manifests
from steersman_cli.migrate import migrate
from steersman_cli.models import models
from steersman_cli.run import run
from steersman_cli.sbom import sbom
from steersman_cli.top import top
from steersman_cli.update import update

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # tables of rich truncate long options at 80 columns
    help="Write Kubernetes operators in typed, async Python.",
)
"""The ``steersman`` command, as a typer application."""

app.command()(init)
app.add_typer(create.group, name="create")
app.command()(manifests)
app.command()(deploy.install)
app.command()(deploy.uninstall)
_operator_options = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(context_settings=_operator_options)(dev)
app.command(context_settings=_operator_options)(run)
app.command()(build)
app.command()(deploy.deploy)
app.command()(deploy.undeploy)
app.command()(installer)
app.command()(chart)
app.command()(bundle)
app.command()(sbom)
app.command()(update)
app.command()(migrate)
app.command()(models)
app.command()(doctor)
app.command()(explain)
app.command()(top)
app.add_typer(crd.group, name="crd")
app.add_typer(rbac.group, name="rbac")
app.add_typer(testing.group, name="testing")


@app.command()
def version() -> None:
    """Print the version.

    Example: steersman version
    """
    typer.echo(version_of("steersman"))


def main() -> None:
    """Run the command."""
    # As with `python -m`: the modules of the operator are in the working directory.
    sys.path.insert(0, "")
    app(prog_name="steersman")
