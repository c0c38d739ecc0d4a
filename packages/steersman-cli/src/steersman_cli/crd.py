"""``steersman crd``: what a new definition breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from steersman.crd import Change, breaking_changes, definitions
from steersman.crd.kinds import find_kinds
from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta.manifests import manifests_in

group = typer.Typer(no_args_is_help=True, help="Tools for custom resource definitions.")
"""The commands below ``steersman crd``."""

_KIND = "CustomResourceDefinition"
_SUFFIXES = (".yaml", ".yml", ".json")

Output = Literal["text", "json"]


@group.callback()
def _crd() -> None:  # pyright: ignore[reportUnusedFunction]
    """Tools for custom resource definitions."""


@group.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file, a directory, - or MODULE[:KIND].")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, of the new definitions.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to tell what was found.")] = "text",
) -> None:
    """Tell what breaks for those who use OLD when NEW takes its place.

    Exit codes: 0 nothing breaks, 1 something does, 2 they cannot be compared.

    Example: steersman crd diff crds.yaml shop.api

    Example: kubectl get crd carts.shop.example.com -o yaml | steersman crd diff - shop.api:Cart -o json
    """
    try:
        changes = _changes(_definitions(old), _definitions(new))
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


def _changes(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[Change]:
    return [msgspec.structs.replace(c, definition=name) for name in old for c in _of_definition(name, old, new)]


def _of_definition(name: str, old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> Iterator[Change]:
    if name in new:
        yield from breaking_changes(old[name], new[name])
    elif len(old) == len(new) == 1:
        # One definition under another name: what changed is worth more than that it is another.
        yield from breaking_changes(old[name], *new.values())
    else:
        yield Change(
            rule="definition-removed",
            message="the definition goes, and with it all objects of the kind",
            fix="keep it, with its versions deprecated, until nobody has objects of it",
        )


def _definitions(place: str) -> dict[str, dict[str, Any]]:
    """The definitions at ``place`` by their names.

    Raises:
        ConfigurationError: there are none, or they are not of v1.
    """
    path = Path(place)
    if place == "-" or path.exists() or path.suffix in _SUFFIXES:
        found = manifests_in(path, (_KIND,))
    else:
        found = definitions(*find_kinds(place))
    if not found:
        raise ConfigurationError(f"{place} has no {_KIND}")
    for manifest in found:
        if manifest["apiVersion"] != "apiextensions.k8s.io/v1":
            raise ConfigurationError(f"{place} has a {_KIND} of {manifest['apiVersion']}: only v1 can be compared")
    return {manifest["metadata"]["name"]: manifest for manifest in found}
