"""``steersman install``, ``uninstall``, ``deploy`` and ``undeploy``: a project on a cluster."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.ending import told_plainly
from steersman.cli.project import Project
from steersman.errors import ConfigurationError
from steersman.meta.documents import documents

if TYPE_CHECKING:
    from steersman.cli.applying import Manifest

IMAGE = "controller:latest"
"""What stands for the operator's image in config/manager, as in kubebuilder's."""

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
) -> None:
    """Apply config/default with an image, by server-side apply. It needs kubectl or kustomize.

    Example: steersman deploy --image registry.example.com/databaseuser:v1

    Example: steersman deploy --image registry.example.com/databaseuser:v1 --dry-run
    """
    with told_plainly():
        _apply(deployed(Project.here(), image), kubeconfig, context, dry_run=dry_run)


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
    directory = str(project.root / "config" / "default")
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize", directory]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build", directory]
    else:
        raise ConfigurationError("config/default is put together by kubectl or kustomize, and neither is in PATH")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ConfigurationError(f"`{' '.join(command[:2])}` failed: {ended.stderr.strip()}")
    found: list[Manifest] = [m for m in documents(ended.stdout) if m]
    if not any(_with_image(m, image) for m in found):
        raise ConfigurationError(f"no Deployment in config/default has a container with the image {IMAGE}")
    return found


def _with_image(manifest: Manifest, image: str) -> bool:
    """Puts ``image`` in its place, and says whether there was one."""
    if manifest["kind"] != "Deployment":
        return False
    containers: list[dict[str, Any]] = manifest["spec"]["template"]["spec"]["containers"]
    ours = [c for c in containers if c["image"] == IMAGE]
    for container in ours:
        container["image"] = image
    return bool(ours)


def _definitions(project: Project) -> list[Manifest]:
    bases = project.root / "config" / "crd" / "bases"
    found: list[Manifest] = [m for p in sorted(bases.glob("*.yaml")) for m in documents(p.read_text())]
    chosen = [m for m in found if m["apiVersion"] == "apiextensions.k8s.io/v1"]
    if not chosen:
        raise ConfigurationError("config/crd/bases has no definition: `steersman create api`, or `make manifests`")
    return chosen


def _apply(manifests: list[Manifest], kubeconfig: str, context: str, *, dry_run: bool) -> None:
    from steersman.cli.applying import Applier, on_cluster

    on_cluster(kubeconfig, context, lambda client: Applier(client, dry_run=dry_run).apply(manifests))


def _delete(manifests: list[Manifest], kubeconfig: str, context: str, *, force: bool, dry_run: bool) -> None:
    from steersman.cli.applying import Applier, on_cluster
    from steersman.client import Client

    async def delete(client: Client) -> None:
        applier = Applier(client, dry_run=dry_run)
        definitions = [m for m in manifests if m["kind"] == "CustomResourceDefinition"]
        counts = {} if force else await applier.objects_of(definitions)
        if counts:
            told = ", ".join(f"{number} {plural}" for plural, number in counts.items())
            raise ConfigurationError(f"there are still {told}, which go with their definitions: --force")
        await applier.delete(manifests)

    on_cluster(kubeconfig, context, delete)
