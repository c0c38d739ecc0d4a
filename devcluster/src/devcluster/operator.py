"""Installs and removes the database operator of this checkout with its images."""

import os
from typing import Any

import yaml

from devcluster.images import CHECKOUT, OPERATOR, Image, ensure_images, load
from devcluster.progress import Progress
from devcluster.target import Target

NAMESPACE = "steersman-databases-system"
DEPLOYMENT = "steersman-databases"


def install(target: Target, progress: Progress) -> None:
    """Install or update the operator; without changes nothing restarts.

    On a cluster other than the devcluster the images must be where its nodes can pull them: set
    STEERSMAN_OPERATOR_IMAGE, STEERSMAN_IMAGE_POSTGRESQL_17 and STEERSMAN_IMAGE_MYSQL_9_7 to their references.

    Raises CommandFailed with the output of kubectl.
    """
    images = _load_images(progress) if target.is_devcluster else []
    with progress.step("Install the operator"):
        manifests = [_with_images(m, images) for m in _manifests(target)]
        # CRDs first: the API server rejects objects of an unknown kind.
        manifests.sort(key=lambda m: m["kind"] not in ("CustomResourceDefinition", "Namespace"))
        target.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=yaml.safe_dump_all(manifests)
        )
        target.kubectl("wait", "--for=condition=Established", "crd/databases.databases.steersman.dev")
        target.kubectl(
            "rollout",
            "status",
            f"deployment/{DEPLOYMENT}",
            f"--namespace={NAMESPACE}",
            "--timeout=180s",
            seconds=200,
        )


def remove(target: Target, progress: Progress) -> None:
    """Delete the CRDs with all their objects, then the operator.

    Raises CommandFailed with the output of kubectl.
    """
    manifests = _manifests(target)
    crds = [m for m in manifests if m["kind"] == "CustomResourceDefinition"]
    with progress.step("Remove the operator"):
        # CRDs first: the operator removes the finalizers of their objects.
        for deleted in (crds, manifests):
            command = ("delete", "--ignore-not-found", "--filename=-", "--timeout=180s")
            target.kubectl(*command, stdin=yaml.safe_dump_all(deleted), seconds=200)


def _manifests(target: Target) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(target.kubectl("kustomize", str(CHECKOUT / "operators/databases/config/default"))))


def _load_images(progress: Progress) -> list[Image]:
    images = ensure_images(progress)
    with progress.step("Load images into the nodes"):
        for image in images:
            load(image)
    return images


def _with_images(manifest: dict[str, Any], images: list[Image]) -> dict[str, Any]:
    """Set one replica and the images, whose change restarts the Deployment."""
    if manifest["kind"] != "Deployment":
        return manifest
    # Tests end the operator's process, and no standby must take over.
    manifest["spec"]["replicas"] = 1
    variables = {name: value for name, value in os.environ.items() if name.startswith("STEERSMAN_IMAGE_")}
    template = manifest["spec"]["template"]
    container = template["spec"]["containers"][0]
    container["image"] = os.environ.get("STEERSMAN_OPERATOR_IMAGE", OPERATOR.reference)
    container["env"] += [{"name": name, "value": value} for name, value in sorted(variables.items())]
    digest = next((i.digest for i in images if i.reference == OPERATOR.reference), "as configured")
    template["metadata"]["annotations"] = {"steersman.dev/image": digest}
    return manifest
