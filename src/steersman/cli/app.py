"""Commands of ``steersman``."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from typing import Annotated

import typer
import yaml

from steersman.cli import testing
from steersman.cli.kinds import find_kinds
from steersman.crd import definition
from steersman.errors import SteersmanError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Write Kubernetes operators in typed, async Python.",
)
"""The ``steersman`` command, as a typer application."""

app.add_typer(testing.group, name="testing")


@app.command()
def manifests(
    kinds: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE[:KIND]...", help="Where kinds are declared; every kind of a module unless named."
        ),
    ],
) -> None:
    """Print the CustomResourceDefinitions of kinds, as YAML.

    Example: steersman manifests shop.api | kubectl apply --server-side -f -

    Example: steersman manifests shop.api:Cart shop.api:Order > crds.yaml
    """
    try:
        documents = [definition(kind) for place in kinds for kind in find_kinds(place)]
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(yaml.safe_dump_all(documents, explicit_start=True, sort_keys=False, width=118), nl=False)


@app.command()
def version() -> None:
    """Print the version.

    Example: steersman version
    """
    typer.echo(version_of("steersman"))


def main() -> None:
    """The entry point of the command."""
    # As with `python -m`: the operator's modules are where it is run.
    sys.path.insert(0, "")
    app(prog_name="steersman")
