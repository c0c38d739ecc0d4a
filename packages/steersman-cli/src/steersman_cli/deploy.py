"""``steersman install``, ``uninstall``, ``deploy`` and ``undeploy``: manage a project on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import report_errors
from steersman_cli.packaging import PLACEHOLDER_IMAGE
from steersman_cli.project import Project
from steersman_manifests.manifest_files import Manifest

if TYPE_CHECKING:
    from steersman.client import Client

KubeconfigOption = Annotated[
    str, typer.Option(help="Path of a kubeconfig. Defaults to $KUBECONFIG or ~/.kube/config.")
]
ContextOption = Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")]
ServerDryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Let the API server validate everything and store nothing.")
]
DeleteObjectsOption = Annotated[
    bool, typer.Option("--force", help="Delete the CRDs even if objects of their kinds exist.")
]


def install(
    kubeconfig: KubeconfigOption = "", context: ContextOption = "", dry_run: ServerDryRunOption = False
) -> None:
    """Install the CRDs of the project.

    The command waits until they are served. Existing CRDs with another label app.kubernetes.io/managed-by than in
    config/crd/bases are kept.

    Example: steersman install --context staging
    """
    with report_errors():
        _apply(_crd_manifests(Project.from_working_directory()), kubeconfig, context, dry_run=dry_run)


def uninstall(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    force: DeleteObjectsOption = False,
    dry_run: ServerDryRunOption = False,
) -> None:
    """Delete the CRDs of the project. If objects of the kinds exist, it needs --force.

    CRDs with another label app.kubernetes.io/managed-by than in config/crd/bases are kept.

    Example: steersman uninstall --dry-run
    """
    with report_errors():
        _delete(_crd_manifests(Project.from_working_directory()), kubeconfig, context, force=force, dry_run=dry_run)


def deploy(
    image: Annotated[
        str, typer.Option("--image", help="Image of the operator, such as registry.example.com/shop:v1.")
    ],
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    dry_run: ServerDryRunOption = False,
    wait: Annotated[bool, typer.Option(help="Wait until the operator is available.")] = True,
    timeout: Annotated[float, typer.Option(help="Timeout of the wait, in seconds.", min=0)] = 300.0,
) -> None:
    """Deploy the operator from config/default.

    The command uses server-side apply, and waits until the operator is available. Existing CRDs with another label
    app.kubernetes.io/managed-by than in the manifests are kept.

    It needs kubectl or kustomize.

    Example: steersman deploy --image registry.example.com/databaseuser:v1

    Example: steersman deploy --image registry.example.com/databaseuser:v1 --dry-run
    """
    with report_errors():
        manifests = deploy_manifests(Project.from_working_directory(), image)
        available_timeout = timeout if wait and not dry_run else None
        _apply(manifests, kubeconfig, context, dry_run=dry_run, available_timeout=available_timeout)


def undeploy(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    force: DeleteObjectsOption = False,
    dry_run: ServerDryRunOption = False,
) -> None:
    """Delete the objects that deploy applied. If objects of the kinds exist, it needs --force.

    CRDs with another label app.kubernetes.io/managed-by than in the manifests are kept.

    Example: steersman undeploy --dry-run
    """
    with report_errors():
        _delete(
            deploy_manifests(Project.from_working_directory(), PLACEHOLDER_IMAGE),
            kubeconfig,
            context,
            force=force,
            dry_run=dry_run,
        )


def deploy_manifests(project: Project, image: str) -> list[Manifest]:
    """Return the manifests of config/default with ``image`` for the operator.

    Raises:
        ConfigurationError: kubectl and kustomize are missing, or the build failed.
    """
    return project.installation().with_image(image)


def _crd_manifests(project: Project) -> list[Manifest]:
    crds = project.crd_manifests()
    if not crds:
        raise ConfigurationError("config/crd/bases has no CRD: run `steersman create api` or `make manifests`")
    return crds


def _apply(
    manifests: list[Manifest],
    kubeconfig: str,
    context: str,
    *,
    dry_run: bool,
    available_timeout: float | None = None,
) -> None:
    from steersman.meta import ObjectKey
    from steersman_cli.apply import display_name, run_with_client, wait_available

    async def apply(client: Client) -> None:
        await apply_manifests(client, manifests, dry_run=dry_run)
        for manifest in manifests:
            if manifest["kind"] == "Deployment" and available_timeout is not None:
                metadata = manifest["metadata"]
                await wait_available(client, ObjectKey(metadata["namespace"], metadata["name"]), available_timeout)
                typer.echo(f"{display_name(manifest)} is available")

    run_with_client(kubeconfig, context, apply)


async def apply_manifests(client: Client, manifests: list[Manifest], *, dry_run: bool) -> None:
    """Apply manifests, except CRDs of another owner.

    Args:
        client: client of the cluster.
        manifests: manifests of a project.
        dry_run: the API server validates the manifests and stores nothing.
    """
    from steersman_cli.apply import Applier

    applier = Applier(client, dry_run=dry_run)
    await applier.apply(await applier.without_foreign_crds(manifests))


def _delete(manifests: list[Manifest], kubeconfig: str, context: str, *, force: bool, dry_run: bool) -> None:
    from steersman_cli.apply import run_with_client

    async def delete(client: Client) -> None:
        await delete_manifests(client, manifests, force=force, dry_run=dry_run)

    run_with_client(kubeconfig, context, delete)


async def delete_manifests(client: Client, manifests: list[Manifest], *, force: bool, dry_run: bool) -> None:
    """Delete the objects of manifests, except CRDs of another owner.

    Args:
        client: client of the cluster.
        manifests: manifests that ``install`` or ``deploy`` applied.
        force: delete CRDs even if objects of their kinds exist.
        dry_run: the API server validates the deletions and stores nothing.

    Raises:
        ConfigurationError: objects of the kinds exist.
    """
    from steersman_cli.apply import Applier

    applier = Applier(client, dry_run=dry_run)
    owned = await applier.without_foreign_crds(manifests)
    crds = [m for m in owned if m["kind"] == "CustomResourceDefinition"]
    counts = {} if force else await applier.count_objects(crds)
    if counts:
        remaining = ", ".join(f"{number} {plural}" for plural, number in counts.items())
        raise ConfigurationError(
            f"objects exist: {remaining}. Deleting the CRDs deletes them; delete them first, or give --force"
        )
    # Their objects first: the operator removes its finalizers while it runs.
    await applier.delete(crds)
    await applier.delete([m for m in owned if m not in crds])
