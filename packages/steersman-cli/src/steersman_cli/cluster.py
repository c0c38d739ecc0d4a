"""``steersman install``, ``uninstall``, ``deploy`` and ``undeploy``: a project on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest
from steersman_cli.ending import told_plainly
from steersman_cli.packaging import IMAGE
from steersman_cli.project import Project

Kubeconfig = Annotated[str, typer.Option(help="A kubeconfig file; $KUBECONFIG or ~/.kube/config unless given.")]
ContextName = Annotated[str, typer.Option("--context", help="A context of the kubeconfig.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the API server check everything, and store nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Delete definitions, and with them all objects of the kinds.")]


def install(kubeconfig: Kubeconfig = "", context: ContextName = "", dry_run: DryRun = False) -> None:
    """Install the project's definitions, and wait until they are served.

    Example: steersman install --context staging
    """
    with told_plainly():
        _apply(_definitions(Project.here()), kubeconfig, context, dry_run=dry_run)


def uninstall(
    kubeconfig: Kubeconfig = "", context: ContextName = "", force: Force = False, dry_run: DryRun = False
) -> None:
    """Delete the project's definitions; while there are objects of the kinds, only with --force.

    Example: steersman uninstall --dry-run
    """
    with told_plainly():
        _delete(_definitions(Project.here()), kubeconfig, context, force=force, dry_run=dry_run)


def deploy(
    image: Annotated[
        str, typer.Option("--image", help="The operator's image, such as registry.example.com/shop:v1.")
    ],
    kubeconfig: Kubeconfig = "",
    context: ContextName = "",
    dry_run: DryRun = False,
    wait: Annotated[
        bool, typer.Option(help="Wait until the operator is available, and its webhooks are answered.")
    ] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 300.0,
) -> None:
    """Apply config/default with an image, by server-side apply, and wait until the operator is available.

    It needs kubectl or kustomize.

    Example: steersman deploy --image registry.example.com/databaseuser:v1

    Example: steersman deploy --image registry.example.com/databaseuser:v1 --dry-run
    """
    with told_plainly():
        manifests = deployed(Project.here(), image)
        seconds = timeout if wait and not dry_run else None
        _apply(manifests, kubeconfig, context, dry_run=dry_run, available_within=seconds)


def undeploy(
    kubeconfig: Kubeconfig = "", context: ContextName = "", force: Force = False, dry_run: DryRun = False
) -> None:
    """Delete what deploy applied; while there are objects of the kinds, only with --force.

    Example: steersman undeploy --dry-run
    """
    with told_plainly():
        _delete(deployed(Project.here(), IMAGE), kubeconfig, context, force=force, dry_run=dry_run)


def deployed(project: Project, image: str) -> list[Manifest]:
    """The manifests of config/default, with ``image`` for the operator.

    Raises:
        ConfigurationError: there is neither kubectl nor kustomize, or they cannot put the files together.
    """
    return project.installation().with_image(image)


def _definitions(project: Project) -> list[Manifest]:
    chosen = project.definitions()
    if not chosen:
        raise ConfigurationError("config/crd/bases has no definition: `steersman create api`, or `make manifests`")
    return chosen


def _apply(
    manifests: list[Manifest],
    kubeconfig: str,
    context: str,
    *,
    dry_run: bool,
    available_within: float | None = None,
) -> None:
    from steersman.client import Client
    from steersman.meta import ObjectKey
    from steersman_cli.applying import Applier, named, on_cluster
    from steersman_cli.rollout import available

    async def apply(client: Client) -> None:
        await Applier(client, dry_run=dry_run).apply(manifests)
        for manifest in manifests:
            if manifest["kind"] == "Deployment" and available_within is not None:
                metadata = manifest["metadata"]
                await available(client, ObjectKey(metadata["namespace"], metadata["name"]), available_within)
                typer.echo(f"{named(manifest)} is available")

    on_cluster(kubeconfig, context, apply)


def _delete(manifests: list[Manifest], kubeconfig: str, context: str, *, force: bool, dry_run: bool) -> None:
    from steersman.client import Client
    from steersman_cli.applying import Applier, on_cluster

    async def delete(client: Client) -> None:
        applier = Applier(client, dry_run=dry_run)
        definitions = [m for m in manifests if m["kind"] == "CustomResourceDefinition"]
        counts = {} if force else await applier.objects_of(definitions)
        if counts:
            told = ", ".join(f"{number} {plural}" for plural, number in counts.items())
            raise ConfigurationError(f"there are still {told}, which go with their definitions: --force")
        await applier.delete(manifests)

    on_cluster(kubeconfig, context, delete)
