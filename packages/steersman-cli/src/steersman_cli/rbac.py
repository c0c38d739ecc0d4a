"""``steersman rbac``: what a role lacks, and what it grants in vain."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta import ApiResource, ObjectKey
from steersman.meta.manifests import manifests_in
from steersman_cli.declaring import declared
from steersman_cli.manifests import declared_by
from steersman_cli.project import Project

if TYPE_CHECKING:
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
    declares: Annotated[
        str | None,
        typer.Option(
            "--declared",
            metavar="MODULE:FUNCTION",
            help="It declares controllers to a Manager; the project's setup unless given.",
        ),
    ] = None,
    webhooks: Annotated[
        str | None,
        typer.Option(
            "--webhooks", metavar="MODULE:NAME", help="Where what --declared declares serves its webhooks, if any."
        ),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What pytest --steersman-rbac recorded.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to tell what was found.")] = "text",
) -> None:
    """Tell what ROLE, all roles together, lacks of what the operator needs, and what it grants beyond that.

    Exit codes: 0 it fits, 1 something is missing or superfluous, 2 they cannot be compared.

    Example: steersman rbac check config/rbac/role.yaml

    Example: steersman rbac check deploy/role.yaml --declared shop.main:setup --recorded .steersman/rbac.json

    Example: steersman rbac check cluster:shop --recorded .steersman/rbac.json -o json
    """
    from steersman.rbac import compare

    try:
        needed = _needed(declares, webhooks, recorded)
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


def _needed(declares: str | None, webhooks: str | None, recorded: Path | None) -> set[Access]:
    from steersman.rbac import Access, accesses

    if webhooks is not None and declares is None:
        raise ConfigurationError("--webhooks is about what --declared declares, which is not given")
    found: set[Access] = set()
    if declares is not None or recorded is None:
        found |= accesses(_manager(declares, webhooks).permissions)
    if recorded is not None:
        try:
            found |= set(msgspec.json.decode(recorded.read_bytes(), type=list[Access]))
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"cannot read {recorded}: {error}") from error
    return found


def _manager(declares: str | None, webhooks: str | None) -> Manager:
    from steersman.manager import ManagerOptions

    if declares is None:
        project = Project.here()
        return declared_by(project, project.webhooks())
    serving = None if webhooks is None else _named(webhooks, "WEBHOOKS")
    return declared(_named(declares, "setup"), ManagerOptions(webhooks=serving))


def _named(place: str, default: str) -> Any:
    name, _, attribute = place.partition(":")
    try:
        return getattr(import_module(name), attribute or default)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{place} is not there: {error}; write package.module:{default}") from error


def _rules(role: str) -> list[dict[str, Any]]:
    if role.startswith("cluster:"):
        return _in_cluster(role.removeprefix("cluster:"))
    found = manifests_in(Path(role), _ROLES)
    if not found:
        raise ConfigurationError(f"{role} has no {' or '.join(_ROLES)}")
    return [rule for manifest in found for rule in manifest.get("rules") or ()]


def _in_cluster(name: str) -> list[dict[str, Any]]:
    from steersman.client.sync import SyncClient
    from steersman.meta import unstructured

    with SyncClient() as client:
        return client.get(unstructured(_CLUSTER_ROLES), ObjectKey("", name)).to_dict().get("rules") or []
