"""``steersman rbac``: find missing and superfluous permissions of roles."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta import ApiResource, ObjectKey
from steersman_cli.manifests import load_project_manager
from steersman_cli.project import Project, load_manager
from steersman_manifests.manifest_files import load_manifests

if TYPE_CHECKING:
    from steersman.manager import Manager
    from steersman_manifests.rbac import ResourceAccess

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check RBAC roles.")
"""The commands below ``steersman rbac``."""

_ROLE_KINDS = ("ClusterRole", "Role")
_CLUSTER_ROLE_RESOURCE = ApiResource(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
)

CheckFormat = Literal["text", "json"]


@group.callback()
def _rbac() -> None:  # pyright: ignore[reportUnusedFunction]
    """Check RBAC roles."""


@group.command()
def check(
    roles: Annotated[
        list[str], typer.Argument(metavar="ROLE", help="Files, directories, - , or cluster:NAME of a ClusterRole.")
    ],
    setup: Annotated[
        str | None,
        typer.Option(
            "--declared",
            metavar="MODULE:FUNCTION",
            help="Function that registers controllers. Defaults to setup of the project.",
        ),
    ] = None,
    webhooks: Annotated[
        str | None,
        typer.Option("--webhooks", metavar="MODULE:NAME", help="WebhookServerOptions for --declared."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that pytest --steersman-rbac recorded.")
    ] = None,
    output: Annotated[CheckFormat, typer.Option("--output", "-o", help="Output format.")] = "text",
) -> None:
    """Compare roles with the permissions that the operator needs.

    Exit codes: 0 equal, 1 permissions are missing or superfluous, 2 they cannot be compared.

    Example: steersman rbac check config/rbac/role.yaml

    Example: steersman rbac check deploy/role.yaml --declared shop.main:setup --recorded .steersman/rbac.json

    Example: steersman rbac check cluster:shop --recorded .steersman/rbac.json -o json
    """
    from steersman_manifests.rbac import compare_role

    try:
        required = _required_access(setup, webhooks, recorded)
        findings = compare_role([rule for role in roles for rule in _load_rules(role)], required)
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(2) from None
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        for label, found in (("missing", findings.missing), ("superfluous", findings.superfluous)):
            for access in found:
                typer.echo(f"{label}: {access}")
        if not (findings.missing or findings.superfluous):
            typer.echo("The role grants exactly the required permissions.")
    if findings.missing or findings.superfluous:
        raise typer.Exit(1)


def _required_access(setup: str | None, webhooks: str | None, recorded: Path | None) -> set[ResourceAccess]:
    from steersman_manifests.rbac import ResourceAccess, resource_accesses

    if webhooks is not None and setup is None:
        raise ConfigurationError("--webhooks requires --declared")
    found: set[ResourceAccess] = set()
    if setup is not None or recorded is None:
        found |= resource_accesses(_load_manager(setup, webhooks).permissions)
    if recorded is not None:
        try:
            found |= set(msgspec.json.decode(recorded.read_bytes(), type=list[ResourceAccess]))
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"cannot read {recorded}: {error}") from error
    return found


def _load_manager(setup: str | None, webhooks: str | None) -> Manager:
    from steersman.manager import ManagerOptions

    if setup is None:
        project = Project.from_working_directory()
        return load_project_manager(project, project.load_webhook_serving())
    serving = None if webhooks is None else _load_attribute(webhooks, "WEBHOOKS")
    return load_manager(_load_attribute(setup, "setup"), ManagerOptions(webhooks=serving))


def _load_attribute(reference: str, default: str) -> Any:
    name, _, attribute = reference.partition(":")
    try:
        return getattr(import_module(name), attribute or default)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{reference} cannot be loaded ({error}): give package.module:{default}") from error


def _load_rules(role: str) -> list[dict[str, Any]]:
    if role.startswith("cluster:"):
        return _cluster_role_rules(role.removeprefix("cluster:"))
    found = load_manifests(Path(role), _ROLE_KINDS)
    if not found:
        raise ConfigurationError(f"{role} has no {' or '.join(_ROLE_KINDS)}")
    return [rule for manifest in found for rule in manifest.get("rules") or ()]


def _cluster_role_rules(name: str) -> list[dict[str, Any]]:
    from steersman.client.sync import SyncClient
    from steersman.meta import unstructured

    with SyncClient() as client:
        return client.get(unstructured(_CLUSTER_ROLE_RESOURCE), ObjectKey("", name)).to_dict().get("rules") or []
