"""``steersman crd``: find breaking changes between CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from steersman.errors import ConfigurationError, SteersmanError
from steersman_manifests.crd import BreakingChange, breaking_changes, definitions
from steersman_manifests.kinds import find_kinds
from steersman_manifests.manifest_files import load_manifests

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compare custom resource definitions.")
"""The commands below ``steersman crd``."""

_CRD_KIND = "CustomResourceDefinition"
_FILE_SUFFIXES = (".yaml", ".yml", ".json")

DiffFormat = Literal["text", "json"]


@group.callback()
def _crd() -> None:  # pyright: ignore[reportUnusedFunction]
    """Compare custom resource definitions."""


@group.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file, a directory, - or MODULE[:KIND].")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new CRDs, in the same form as OLD.")],
    output: Annotated[DiffFormat, typer.Option("--output", "-o", help="Output format.")] = "text",
) -> None:
    """List the breaking changes from OLD to NEW.

    Exit codes: 0 no breaking changes, 1 breaking changes, 2 the CRDs cannot be compared.

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
        typer.echo(f"{count} breaking change{'' if count == 1 else 's'}." if changes else "No breaking changes.")
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
        # A renamed CRD: its changes are more useful than "removed".
        yield from breaking_changes(old[name], *new.values())
    else:
        yield BreakingChange(
            rule="definition-removed",
            message="the CRD is removed, which deletes all objects of the kind",
            fix="keep the CRD with deprecated versions until no objects exist",
        )


def _load_definitions(source: str) -> dict[str, dict[str, Any]]:
    """Return the CRDs of a source, by name.

    Raises:
        ConfigurationError: the source has no CRD, or one that is not of v1.
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
