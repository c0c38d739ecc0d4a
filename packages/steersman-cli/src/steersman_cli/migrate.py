"""``steersman migrate``: storage versions of custom resources, and operators of Kopf."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.deploy import ContextOption, KubeconfigOption, ServerDryRunOption
from steersman_cli.exit_codes import report_errors
from steersman_cli.kopf.command import kopf
from steersman_cli.output import OutputFormat, print_output

if TYPE_CHECKING:
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman.client import Client

ProgressCallback = Callable[[int, int], None]
group = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Migrate stored objects to another version, or from Kopf."
)
"""The commands below ``steersman migrate``."""
group.command("kopf")(kopf)


@group.command("storage-version")
def storage_version(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND", help="Custom resources by the names of kubectl: cronjobs, CronJob, cronjobs.GROUP."
        ),
    ] = None,
    all_kinds: Annotated[
        bool, typer.Option("--all", help="All custom resources with several stored versions.")
    ] = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    dry_run: ServerDryRunOption = False,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Rewrite objects in their storage version.

    Then old versions can be removed from the CRD. Each object is written once, without a change. The command can be
    interrupted and run again.

    Example: steersman migrate storage-version cronjobs.batch.tutorial.kubebuilder.io --dry-run

    Example: steersman migrate storage-version --all --context staging -o json
    """
    with report_errors():
        if bool(kinds) == all_kinds:
            raise ConfigurationError("give kinds, or --all")
        from steersman_cli.apply import run_with_client

        results = run_with_client(
            kubeconfig, context, lambda client: migrate_kinds(client, kinds or [], dry_run=dry_run)
        )
    verb = "would be written" if dry_run else "written"
    rows = [(f["name"], f["storageVersion"], str(f["written"]), ", ".join(f["dropped"]) or "-") for f in results]
    print_output(results, output, columns=("kind", "stored in", verb, "no longer stored in"), rows=rows)


async def migrate_kinds(client: Client, names: list[str], *, dry_run: bool) -> list[dict[str, Any]]:
    """Migrate the named kinds, or all that need it; return results.

    Raises:
        ConfigurationError: a name matches no custom resource, or several.
        SteersmanError: the migration failed. Kinds before it are migrated.
    """
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman.meta import ApiResource
    from steersman_cli.storage_version import migrate_storage_version

    definitions = (await client.list(CustomResourceDefinition)).items
    selected = (
        [_find_crd(name, definitions) for name in dict.fromkeys(names)] if names else _needing_migration(definitions)
    )
    results: list[dict[str, Any]] = []
    for definition in selected:
        spec, name = definition.spec, definition.metadata.name
        version = next(v.name for v in spec.versions if v.storage)
        kind = ApiResource(spec.group, version, spec.names.kind, spec.names.plural, spec.scope == "Namespaced")
        with _progress_bar(name) as progress:
            migration = await migrate_storage_version(client, kind, dry_run=dry_run, on_progress=progress)
        storage = {"storageVersion": migration.storage_version}
        results.append(
            {
                "name": name,
                **storage,
                "written": migration.objects_written,
                "dropped": list(migration.removed_versions),
            }
        )
    return results


def _find_crd(name: str, definitions: tuple[CustomResourceDefinition, ...]) -> CustomResourceDefinition:
    found = [d for d in definitions if name.lower() in _accepted_names(d)]
    if not found:
        raise ConfigurationError(f"the cluster has no custom resource {name!r}")
    if len(found) > 1:
        raise ConfigurationError(f"{name!r} is ambiguous: give one of {', '.join(d.metadata.name for d in found)}")
    return found[0]


def _accepted_names(definition: CustomResourceDefinition) -> set[str]:
    names = definition.spec.names
    return {definition.metadata.name, names.plural, names.kind.lower(), names.singular or "", *names.short_names} - {
        ""
    }


def _needing_migration(definitions: tuple[CustomResourceDefinition, ...]) -> list[CustomResourceDefinition]:
    return [d for d in definitions if d.status and len(d.status.stored_versions) > 1]


@contextmanager
def _progress_bar(name: str) -> Generator[ProgressCallback]:
    """Show the progress on a terminal, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
