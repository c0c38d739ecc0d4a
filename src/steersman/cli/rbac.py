"""``steersman rbac``: what a role lacks, and what it grants in vain."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import msgspec
import typer

from steersman.cli.files import manifests_in
from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta import ApiResource, ObjectKey

if TYPE_CHECKING:
    from steersman.client import HttpRequest
    from steersman.manager import Manager
    from steersman.rbac import Access

group = typer.Typer(no_args_is_help=True, help="Tools for roles.")
"""The commands below ``steersman rbac``."""

_ROLES = ("ClusterRole", "Role")
_CLUSTER_ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)

Output = Literal["text", "json"]


@group.callback()
def _rbac() -> None:  # pyright: ignore[reportUnusedFunction]
    """Tools for roles."""


@group.command()
def check(
    roles: Annotated[
        list[str], typer.Argument(metavar="ROLE...", help="Files, directories, - , or cluster:NAME of a ClusterRole.")
    ],
    declared: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="It declares controllers to a Manager, or makes one."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What pytest --steersman-rbac recorded.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to tell what was found.")] = "text",
) -> None:
    """Tell what ROLE, all roles together, lacks of what the operator needs, and what it grants beyond that.

    Exit codes: 0 it fits, 1 something is missing or superfluous, 2 they cannot be compared.

    Example: steersman rbac check config/rbac/role.yaml --declared shop.controllers:setup

    Example: steersman rbac check cluster:shop --recorded .steersman/rbac.json -o json
    """
    from steersman.rbac import compare

    try:
        needed = _needed(declared, recorded)
        findings = compare([rule for role in roles for rule in _rules(role)], needed)
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(2) from None
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        for what, found in (("missing", findings.missing), ("superfluous", findings.superfluous)):
            for access in found:
                typer.echo(f"{what}: {access}")
        if not (findings.missing or findings.superfluous):
            typer.echo("The role grants what is needed, and nothing beyond.")
    if findings.missing or findings.superfluous:
        raise typer.Exit(1)


def _needed(declared: str | None, recorded: Path | None) -> set[Access]:
    from steersman.rbac import Access, accesses

    if declared is None and recorded is None:
        raise ConfigurationError("say what is needed: --declared MODULE:FUNCTION, --recorded FILE, or both")
    found: set[Access] = set()
    if declared is not None:
        found |= accesses(_manager(declared).permissions)
    if recorded is not None:
        try:
            found |= set(msgspec.json.decode(recorded.read_bytes(), type=list[Access]))
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"cannot read {recorded}: {error}") from error
    return found


class _Unconnected:
    """Stands where a transport is asked for: declaring controllers sends nothing."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"what declares controllers must not send {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"what declares controllers must not watch {request.path}")

    async def close(self) -> None:
        return


def _manager(place: str) -> Manager:
    from steersman.manager import Manager

    name, _, function = place.partition(":")
    try:
        declare: Any = getattr(import_module(name), function or "setup")
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{place} is no function: {error}; write package.module:setup") from error
    if not signature(declare).parameters:
        made = declare()
        if not isinstance(made, Manager):
            raise ConfigurationError(f"{place} gives no Manager: write a function that takes or gives one")
        return made
    manager = Manager(_Unconnected())
    declare(manager)
    return manager


def _rules(role: str) -> list[dict[str, Any]]:
    if role.startswith("cluster:"):
        return _in_cluster(role.removeprefix("cluster:"))
    found = [m for m in manifests_in(Path(role)) if m["kind"] in _ROLES]
    if not found:
        raise ConfigurationError(f"{role} has no {' or '.join(_ROLES)}")
    return [rule for manifest in found for rule in manifest.get("rules") or ()]


def _in_cluster(name: str) -> list[dict[str, Any]]:
    from steersman.client.sync import SyncClient
    from steersman.meta import unstructured

    with SyncClient() as client:
        return client.get(unstructured(_CLUSTER_ROLES), ObjectKey("", name)).to_dict().get("rules") or []
