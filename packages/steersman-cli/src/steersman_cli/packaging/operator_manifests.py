"""Manifests of an operator in ``config/``: the source of all packages."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steersman.errors import ConfigurationError
from steersman_cli.packaging.kustomize import build_kustomization
from steersman_manifests.manifest_files import Manifest

PLACEHOLDER_IMAGE = "controller:latest"
"""Placeholder of the operator's image in config/manager, the same as kubebuilder's."""

OPTIONAL_COMPONENTS = ("prometheus", "network-policy", "certmanager")
"""Directories of ``config/`` that ``config/default`` omits and packages offer."""


@dataclass(frozen=True)
class OperatorManifests:
    """Manifests of an operator, with access to its parts.

    Attributes:
        name: name of the operator.
        manifests: manifests of ``config/default``, in its order.
        components: manifests of the directories in ``OPTIONAL_COMPONENTS`` that are not in ``manifests``.
        image: placeholder of the operator's image.

    Raises:
        ConfigurationError: the manifests have no Deployment of the operator.
    """

    name: str
    manifests: tuple[Manifest, ...]
    components: dict[str, tuple[Manifest, ...]] = field(default_factory=dict[str, tuple[Manifest, ...]])
    image: str = PLACEHOLDER_IMAGE

    def __post_init__(self) -> None:
        if not self._operator_deployments():
            raise ConfigurationError(
                f"no Deployment in config/default has a container with the image {self.image}: "
                "restore that image in config/manager/deployment.yaml; commands replace it by --image"
            )

    @classmethod
    def read(cls, config: Path, name: str, *, image: str = PLACEHOLDER_IMAGE) -> OperatorManifests:
        """Build the manifests of the directory ``config``.

        Args:
            config: directory with ``default/kustomization.yaml`` and the optional components.
            name: name of the operator.
            image: placeholder of the operator's image in its Deployment.

        Raises:
            ConfigurationError: kubectl and kustomize are missing, the build failed, or the Deployment of the operator
                is missing.
        """
        manifests = build_kustomization(config / "default")
        present = {object_identity(m) for m in manifests}
        components: dict[str, tuple[Manifest, ...]] = {}
        for component in OPTIONAL_COMPONENTS:
            if (config / component / "kustomization.yaml").exists():
                found = build_kustomization(config / component)
                components[component] = tuple(m for m in found if object_identity(m) not in present)
        return cls(name, tuple(manifests), components, image)

    @property
    def deployment(self) -> Manifest:
        """Deployment of the operator."""
        return self._operator_deployments()[0]

    @property
    def pod(self) -> dict[str, Any]:
        """Pod spec of the Deployment."""
        return self.deployment["spec"]["template"]["spec"]

    @property
    def container(self) -> dict[str, Any]:
        """Container of the manager."""
        return next(c for c in self.pod["containers"] if c["image"] == self.image)

    @property
    def namespace(self) -> str:
        """Namespace of the operator.

        Raises:
            ConfigurationError: the Deployment has no namespace.
        """
        if found := self.deployment["metadata"].get("namespace", ""):
            return found
        raise ConfigurationError(
            "the operator's Deployment has no namespace: set namespace in config/default/kustomization.yaml"
        )

    @property
    def service_account(self) -> Manifest:
        """ServiceAccount of the operator.

        Raises:
            ConfigurationError: the manifests lack it.
        """
        name = self.pod.get("serviceAccountName", "default")
        if found := next((m for m in self.of_kind("ServiceAccount") if m["metadata"]["name"] == name), None):
            return found
        raise ConfigurationError(
            f"config/default has no ServiceAccount {name}, which the operator uses: "
            "add it to config/rbac/kustomization.yaml"
        )

    @property
    def crds(self) -> tuple[Manifest, ...]:
        """CustomResourceDefinitions."""
        return self.of_kind("CustomResourceDefinition")

    @property
    def webhooks(self) -> tuple[Manifest, ...]:
        """Mutating and validating webhook configurations."""
        return self.of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

    @property
    def roles(self) -> tuple[Manifest, ...]:
        """Roles and ClusterRoles, including those for users of the kinds."""
        return self.of_kind("Role", "ClusterRole")

    @property
    def bindings(self) -> tuple[Manifest, ...]:
        """RoleBindings and ClusterRoleBindings."""
        return self.of_kind("RoleBinding", "ClusterRoleBinding")

    def of_kind(self, *kinds: str) -> tuple[Manifest, ...]:
        """Return the manifests of ``kinds``."""
        return tuple(m for m in self.manifests if m["kind"] in kinds)

    def role_bindings(self) -> tuple[tuple[Manifest, Manifest], ...]:
        """Return the bindings of the operator's ServiceAccount with their roles.

        Bindings whose role is not among the manifests are omitted.
        """
        account = self.service_account["metadata"]["name"]
        found: list[tuple[Manifest, Manifest]] = []
        for binding in self.bindings:
            subjects = binding.get("subjects") or ()
            if not any(s["kind"] == "ServiceAccount" and s["name"] == account for s in subjects):
                continue
            ref = binding["roleRef"]
            role_key = (ref["kind"], ref["name"])
            found += [(binding, r) for r in self.roles if (r["kind"], r["metadata"]["name"]) == role_key]
        return tuple(found)

    def with_image(self, image: str) -> list[Manifest]:
        """Return a copy of ``manifests`` with the placeholder replaced by ``image``.

        Only containers of Deployments are changed. ``components`` are not included.
        """
        found = copy.deepcopy(list(self.manifests))
        for manifest in found:
            for container in _containers(manifest):
                if container["image"] == self.image:
                    container["image"] = image
        return found

    def _operator_deployments(self) -> list[Manifest]:
        return [
            m
            for m in self.of_kind("Deployment")
            if any(c["image"] == self.image for c in m["spec"]["template"]["spec"]["containers"])
        ]


def object_identity(manifest: Manifest) -> tuple[str, str, str, str]:
    """Return the identity of an object: API group, kind, namespace and name."""
    metadata = manifest["metadata"]
    group = manifest["apiVersion"].rpartition("/")[0]
    return (group, manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def _containers(manifest: Manifest) -> list[dict[str, Any]]:
    if manifest["kind"] != "Deployment":
        return []
    pod = manifest["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]
