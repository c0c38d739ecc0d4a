"""An operator as ``config/`` deploys it: the one source of all packages."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.kustomize import build_kustomization

PLACEHOLDER_IMAGE = "controller:latest"
"""What stands for the operator's image in config/manager, as in kubebuilder's."""

OPTIONAL_COMPONENTS = ("prometheus", "network-policy", "certmanager")
"""Directories of ``config/`` that ``config/default`` leaves out, and packages may offer."""


@dataclass(frozen=True)
class OperatorManifests:
    """The manifests of an operator, with the parts that packages tell apart.

    Attributes:
        name: of the operator.
        manifests: all that ``config/default`` comes to, in its order.
        components: what each directory of ``COMPONENTS`` comes to, if there is one; none of it is in ``manifests``.
        image: what stands for the operator's image.

    Raises:
        ConfigurationError: none of the manifests is the operator's Deployment.
    """

    name: str
    manifests: tuple[Manifest, ...]
    components: dict[str, tuple[Manifest, ...]] = field(default_factory=dict[str, tuple[Manifest, ...]])
    image: str = PLACEHOLDER_IMAGE

    def __post_init__(self) -> None:
        if not self._operator_deployments():
            raise ConfigurationError(
                f"no Deployment in config/default has a container with the image {self.image}: "
                "that is what stands for the operator's own, in config/manager/deployment.yaml"
            )

    @classmethod
    def read(cls, config: Path, name: str, *, image: str = PLACEHOLDER_IMAGE) -> OperatorManifests:
        """That of the directory ``config``.

        Args:
            config: has ``default/kustomization.yaml``, and beside it the optional components.
            name: of the operator.
            image: what stands for the operator's image in its Deployment.

        Raises:
            ConfigurationError: kubectl and kustomize are missing, the files cannot be put together, or there is none
                of the operator's Deployment.
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
        """The operator's own."""
        return self._operator_deployments()[0]

    @property
    def pod(self) -> dict[str, Any]:
        """The spec of its pods."""
        return self.deployment["spec"]["template"]["spec"]

    @property
    def container(self) -> dict[str, Any]:
        """The manager's."""
        return next(c for c in self.pod["containers"] if c["image"] == self.image)

    @property
    def namespace(self) -> str:
        """Where it is deployed. Raises ConfigurationError: the manifests do not say."""
        if found := self.deployment["metadata"].get("namespace", ""):
            return found
        raise ConfigurationError("config/default/kustomization.yaml has no namespace: NAME, so packages have none")

    @property
    def service_account(self) -> Manifest:
        """Whom it works as. Raises ConfigurationError: it is not among the manifests."""
        name = self.pod.get("serviceAccountName", "default")
        if found := next((m for m in self.of_kind("ServiceAccount") if m["metadata"]["name"] == name), None):
            return found
        raise ConfigurationError(
            f"the operator works as the ServiceAccount {name}, and config/default has none of that name: "
            "list it in config/rbac/kustomization.yaml"
        )

    @property
    def crds(self) -> tuple[Manifest, ...]:
        """Its CustomResourceDefinitions."""
        return self.of_kind("CustomResourceDefinition")

    @property
    def webhooks(self) -> tuple[Manifest, ...]:
        """Its webhook configurations."""
        return self.of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

    @property
    def roles(self) -> tuple[Manifest, ...]:
        """Its Roles and ClusterRoles, those for users of its kinds included."""
        return self.of_kind("Role", "ClusterRole")

    @property
    def bindings(self) -> tuple[Manifest, ...]:
        """Its RoleBindings and ClusterRoleBindings."""
        return self.of_kind("RoleBinding", "ClusterRoleBinding")

    def of_kind(self, *kinds: str) -> tuple[Manifest, ...]:
        """The manifests of ``kinds``."""
        return tuple(m for m in self.manifests if m["kind"] in kinds)

    def role_bindings(self) -> tuple[tuple[Manifest, Manifest], ...]:
        """Each binding of the operator's own ServiceAccount, with its role where that is among the manifests."""
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
        """All manifests, with ``image`` for the operator."""
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
    """By what no other object is called: API group, kind, namespace and name."""
    metadata = manifest["metadata"]
    group = manifest["apiVersion"].rpartition("/")[0]
    return (group, manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def _containers(manifest: Manifest) -> list[dict[str, Any]]:
    if manifest["kind"] != "Deployment":
        return []
    pod = manifest["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]
