"""``steersman crd``: what a new definition breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from steersman.crd import BreakingChange, breaking_changes, definitions
from steersman.crd.kinds import find_kinds
from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta.manifests import load_manifests

group = typer.Typer(no_args_is_help=True, help="Tools for custom resource definitions.")
"""The commands below ``steersman crd``."""

_CRD_KIND = "CustomResourceDefinition"
_FILE_SUFFIXES = (".yaml", ".yml", ".json")

DiffFormat = Literal["text", "json"]


@group.callback()
def _crd() -> None:  # pyright: ignore[reportUnusedFunction]
    """Tools for custom resource definitions."""


@group.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file, a directory, - or MODULE[:KIND].")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, of the new definitions.")],
    output: Annotated[DiffFormat, typer.Option("--output", "-o", help="How to tell what was found.")] = "text",
) -> None:
    """Tell what breaks for those who use OLD when NEW takes its place.

    Exit codes: 0 nothing breaks, 1 something does, 2 they cannot be compared.

    Example: steersman crd diff crds.yaml shop.api

    Example: kubectl get crd carts.shop.example.com -o yaml | steersman crd diff - shop.api:Cart -o json
    """
    try:
        changes = _breaking_changes(_load_definitions(old), _load_definitions(new))
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(2) from None
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(changes)).decode())
    else:
        for change in changes:
            typer.echo(str(change))
        count = len(changes)
        typer.echo(f"{count} breaking change{'' if count == 1 else 's'}." if changes else "Nothing breaks.")
    if changes:
        raise typer.Exit(1)


def _breaking_changes(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[BreakingChange]:
    return [msgspec.structs.replace(c, definition=name) for name in old for c in _definition_changes(name, old, new)]


def _definition_changes(
    name: str, old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]
) -> Iterator[BreakingChange]:
    if name in new:
        yield from breaking_changes(old[name], new[name])
    elif len(old) == len(new) == 1:
        # One definition under another name: what changed is worth more than that it is another.
        yield from breaking_changes(old[name], *new.values())
    else:
        yield BreakingChange(
            rule="definition-removed",
            message="the definition goes, and with it all objects of the kind",
            fix="keep it, with its versions deprecated, until nobody has objects of it",
        )


def _load_definitions(source: str) -> dict[str, dict[str, Any]]:
    """The definitions at ``place`` by their names.

    Raises:
        ConfigurationError: there are none, or they are not of v1.
    """
    path = Path(source)
    if source == "-" or path.exists() or path.suffix in _FILE_SUFFIXES:
        found = load_manifests(path, (_CRD_KIND,))
    else:
        found = definitions(*find_kinds(source))
    if not found:
        raise ConfigurationError(f"{source} has no {_CRD_KIND}")
    for manifest in found:
        if manifest["apiVersion"] != "apiextensions.k8s.io/v1":
            raise ConfigurationError(
                f"{source} has a {_CRD_KIND} of {manifest['apiVersion']}: only v1 can be compared"
            )
    return {manifest["metadata"]["name"]: manifest for manifest in found}
