"""Brings the database operator of this checkout into a cluster, images included."""

import os

from devcluster.images import CHECKOUT, OPERATOR, Image, ensure_images, load
from devcluster.progress import Progress
from devcluster.target import Target

NAMESPACE = "steersman-system"
DEPLOYMENT = "steersman-databases"
MYSQL_IMAGE = "STEERSMAN_IMAGE_MYSQL_9_7"


def install(target: Target, progress: Progress) -> None:
    """Install the operator, or bring it up to date; nothing restarts when nothing is new.

    On a cluster other than the devcluster the images must be where its nodes can pull them: set
    STEERSMAN_OPERATOR_IMAGE, STEERSMAN_IMAGE_POSTGRESQL_17 and STEERSMAN_IMAGE_MYSQL_9_7 to their references.

    Raises CommandFailed with the API server's or kubectl's words.
    """
    images = _load_images(progress) if target.is_devcluster else []
    with progress.step("Install the operator"):
        kustomization = CHECKOUT / "operators/databases/config/default"
        target.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", str(kustomization))
        target.kubectl("wait", "--for=condition=Established", "crd/databases.databases.steersman.dev")
        _configure(target, images)
        target.kubectl(
            "rollout",
            "status",
            f"deployment/{DEPLOYMENT}",
            f"--namespace={NAMESPACE}",
            "--timeout=180s",
            seconds=200,
        )


def _load_images(progress: Progress) -> list[Image]:
    images = ensure_images(progress)
    with progress.step("Load images into the nodes"):
        for image in images:
            load(image)
    return images


def _configure(target: Target, images: list[Image]) -> None:
    """Restarts the operator when its image has changed under the same name, and tells it where images are."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("STEERSMAN_IMAGE_")}
    for image in images:
        if image.stands_in_for:
            variables[MYSQL_IMAGE] = image.reference
    container: dict[str, object] = {
        "name": "operator",
        "env": [{"name": name, "value": value} for name, value in sorted(variables.items())],
    }
    if reference := os.environ.get("STEERSMAN_OPERATOR_IMAGE"):
        container["image"] = reference
    digest = next((i.digest for i in images if i.reference == OPERATOR.reference), "as configured")
    target.patch_deployment(NAMESPACE, DEPLOYMENT, annotations={"steersman.dev/image": digest}, container=container)
