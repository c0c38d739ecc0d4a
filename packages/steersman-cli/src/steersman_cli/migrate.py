"""``steersman migrate``: stored objects in the version in which their kind is stored now."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.cluster import ContextName, DryRun, Kubeconfig
from steersman_cli.ending import told_plainly
from steersman_cli.output import Format, tell

if TYPE_CHECKING:
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman.client import Client

Progress = Callable[[int, int], None]


def migrate(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND...]", help="Custom kinds, as kubectl takes them: cronjobs, CronJob, cronjobs.GROUP."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every custom kind whose objects may be stored in several versions.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: ContextName = "",
    dry_run: DryRun = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to tell.")] = "table",
) -> None:
    """Rewrite stored objects in the storage version of their kind, so that a former version can leave the definition.

    Each object is written once and does not change. It may be ended at any time, and begun again.

    Example: steersman migrate cronjobs.batch.tutorial.kubebuilder.io --dry-run

    Example: steersman migrate --all --context staging -o json
    """
    with told_plainly():
        if bool(kinds) == every:
            raise ConfigurationError("say which kinds, or --all")
        from steersman_cli.applying import on_cluster

        found = on_cluster(kubeconfig, context, lambda client: migrated(client, kinds or [], dry_run=dry_run))
    verb = "would be written" if dry_run else "written"
    rows = [(f["name"], f["storageVersion"], str(f["written"]), ", ".join(f["dropped"]) or "-") for f in found]
    tell(found, output, columns=("kind", "stored in", verb, "no longer stored in"), rows=rows)


async def migrated(client: Client, names: list[str], *, dry_run: bool) -> list[dict[str, Any]]:
    """What was done to each of the kinds that ``names`` name; to all that need it if there are none.

    Raises:
        ConfigurationError: a name is that of no custom kind, or of several.
        SteersmanError: as ``migrate_storage_version``; the kinds before it are done.
    """
    from steersman.api.apiextensions_v1 import CustomResourceDefinition
    from steersman.meta import ApiResource
    from steersman.webhook import migrate_storage_version

    definitions = (await client.list(CustomResourceDefinition)).items
    chosen = [_named(name, definitions) for name in dict.fromkeys(names)] if names else _unfinished(definitions)
    told: list[dict[str, Any]] = []
    for definition in chosen:
        spec, name = definition.spec, definition.metadata.name
        version = next(v.name for v in spec.versions if v.storage)
        kind = ApiResource(spec.group, version, spec.names.kind, spec.names.plural, spec.scope == "Namespaced")
        with _shown(name) as progress:
            done = await migrate_storage_version(client, kind, dry_run=dry_run, on_progress=progress)
        storage = {"storageVersion": done.storage_version}
        told.append({"name": name, **storage, "written": done.written, "dropped": list(done.dropped)})
    return told


def _named(name: str, definitions: tuple[CustomResourceDefinition, ...]) -> CustomResourceDefinition:
    found = [d for d in definitions if name.lower() in _names(d)]
    if not found:
        raise ConfigurationError(f"the cluster has no custom kind {name!r}")
    if len(found) > 1:
        raise ConfigurationError(f"{name!r} may be {', '.join(d.metadata.name for d in found)}: say which")
    return found[0]


def _names(definition: CustomResourceDefinition) -> set[str]:
    names = definition.spec.names
    return {definition.metadata.name, names.plural, names.kind.lower(), names.singular or "", *names.short_names} - {
        ""
    }


def _unfinished(definitions: tuple[CustomResourceDefinition, ...]) -> list[CustomResourceDefinition]:
    return [d for d in definitions if d.status and len(d.status.stored_versions) > 1]


@contextmanager
def _shown(name: str) -> Generator[Progress]:
    """Shows how far it is, on the terminal and beside what is told at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
