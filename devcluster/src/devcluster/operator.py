"""Brings the database operator of this checkout into a cluster, images included."""

import os
from pathlib import Path

from devcluster.images import ensure_images, load
from devcluster.progress import Progress
from devcluster.target import Target

NAMESPACE = "steersman-system"
DEPLOYMENT = "steersman-databases"


def checkout() -> Path:
    """The root of the checkout that this package was installed from (editable)."""
    return Path(__file__).resolve().parents[3]


def install(target: Target, progress: Progress) -> None:
    """Install the operator, or bring it up to date; nothing restarts when nothing is new.

    On a cluster other than the devcluster the images must be where its nodes can pull them: set
    STEERSMAN_OPERATOR_IMAGE, STEERSMAN_IMAGE_POSTGRESQL_17 and STEERSMAN_IMAGE_MYSQL_9_7 to their references.

    Raises CommandFailed with the API server's or kubectl's words.
    """
    version = _load_images(progress) if target.is_devcluster else "as configured"
    with progress.step("Install the operator"):
        kustomization = checkout() / "operators/databases/config/default"
        target.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", str(kustomization))
        target.kubectl("wait", "--for=condition=Established", "crd/databases.databases.steersman.dev")
        _configure(target, version)
        target.kubectl(
            "rollout", "status", f"deployment/{DEPLOYMENT}", f"--namespace={NAMESPACE}", "--timeout=180s", seconds=200
        )


def _load_images(progress: Progress) -> str:
    """Builds and loads all images; returns what identifies the operator's, to restart it when that changes."""
    images = ensure_images(progress)
    with progress.step("Load images into the nodes"):
        for image in images:
            load(image)
    return next(image.digest for image in images if "operator" in image.reference)


def _configure(target: Target, version: str) -> None:
    """Restarts the operator when its image has changed under the same name, and passes the user's references on."""
    container: dict[str, object] = {"name": "operator"}
    if reference := os.environ.get("STEERSMAN_OPERATOR_IMAGE"):
        container["image"] = reference
    names = (name for name in os.environ if name.startswith("STEERSMAN_IMAGE_"))
    container["env"] = [{"name": name, "value": os.environ[name]} for name in sorted(names)]
    target.patch_deployment(NAMESPACE, DEPLOYMENT, annotations={"steersman.dev/image": version}, container=container)
