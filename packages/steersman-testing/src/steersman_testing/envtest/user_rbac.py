"""RBAC of test users.

Source: "Using RBAC Authorization" in the Kubernetes documentation.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from steersman.api.authorization_v1 import (
    NonResourceAttributes,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from steersman.api.meta_v1 import LabelSelector
from steersman.api.rbac_v1 import ClusterRole, ClusterRoleBinding, RoleBinding
from steersman.client import Client
from steersman.errors import ConfigurationError, NotFound, SteersmanError
from steersman.meta import ObjectKey
from steersman_manifests.manifest_files import Manifest
from steersman_testing.envtest.installer import ResourceInstaller, poll_until

RoleReference: TypeAlias = str | Mapping[str, Any]
"""Name of an existing ClusterRole, or a manifest to install."""

_GROUP = "rbac.authorization.k8s.io"
_USER_LABEL = "envtest.steersman.dev/user"
_REQUIREMENT_FORMATS = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


class UserRbac:
    """Binds roles to users on one API server.

    Args:
        client: client of an administrator.
        installation: installs roles and bindings.
        has_aggregation: whether a controller manager fills aggregated ClusterRoles.
    """

    def __init__(self, client: Client, installation: ResourceInstaller, *, has_aggregation: bool) -> None:
        self._client = client
        self._installation = installation
        self._has_aggregation = has_aggregation
        # Other test processes may create equal usernames on the same server.
        self._token = secrets.token_hex(4)

    async def replace(
        self, user: str, roles: Sequence[RoleReference], rules: Sequence[Manifest], namespace: str
    ) -> None:
        """Replace the permissions of ``user`` and wait until they are effective.

        Args:
            user: username.
            roles: see ``RoleReference``. A Role applies to its own namespace.
            rules: RBAC rules in wire form, as returned by ``policy_rules``.
            namespace: namespace to which ClusterRoles and rules apply. Empty: all namespaces.

        Raises:
            ConfigurationError: if a ClusterRole does not exist or a Role has no namespace.
            SteersmanError: on timeout.
        """
        name = f"envtest:{hashlib.sha256(f'{self._token} {user}'.encode()).hexdigest()[:12]}"
        role_refs = [await self._install_role(role) for role in await self._expand_aggregated(roles)]
        if rules:
            role_refs.append(await self._install_role(_role(name, rules, namespace)))
        had_bindings = await self._delete_bindings(name)
        for role in role_refs:
            binding_name = f"{name}:{role['kind']}:{role['metadata']['name']}"
            await self._installation.apply(_binding(binding_name, role, user, namespace))
        if role_refs or had_bindings:
            await self._wait_until_effective(namespace or "default")

    async def _install_role(self, role: RoleReference) -> Manifest:
        if isinstance(role, str):
            return {"kind": "ClusterRole", "metadata": {"name": role}}
        manifest = dict(role)
        if manifest.get("kind") not in ("ClusterRole", "Role"):
            raise ConfigurationError(f"a {manifest.get('kind')} is not a role: use a ClusterRole or a Role")
        if manifest["kind"] == "Role" and not manifest["metadata"].get("namespace"):
            raise ConfigurationError(f"the Role {manifest['metadata']['name']} has no namespace")
        await self._installation.apply(manifest)
        return manifest

    async def _expand_aggregated(self, roles: Iterable[RoleReference]) -> list[RoleReference]:
        """Add the roles that ``roles`` aggregate, since envtest has no controller manager."""
        pending, found = list(roles), list[RoleReference]()
        while pending:
            role = pending.pop()
            if role in found:
                continue
            found.append(role)
            if isinstance(role, str):
                pending += await self._aggregated_roles(role)
        return found

    async def _aggregated_roles(self, name: str) -> list[str]:
        try:
            role = await self._client.get(ClusterRole, ObjectKey("", name))
        except NotFound:
            raise ConfigurationError(f"ClusterRole {name} does not exist: pass its manifest, or rules") from None
        if self._has_aggregation or role.aggregation_rule is None:
            return []
        role_names: list[str] = []
        for selector in role.aggregation_rule.cluster_role_selectors:
            matching = await self._client.list(ClusterRole, label_selector=_selector_string(selector))
            role_names += [r.metadata.name for r in matching.items]
        return role_names

    async def _delete_bindings(self, name: str) -> bool:
        """Delete the bindings of a user. Return False if there were none."""
        selector = f"{_USER_LABEL}={_user_label_value(name)}"
        namespaced = (await self._client.list(RoleBinding, label_selector=selector)).items
        cluster_wide = (await self._client.list(ClusterRoleBinding, label_selector=selector)).items
        for binding in (*namespaced, *cluster_wide):
            await self._client.delete(type(binding), binding.key)
        return bool(namespaced or cluster_wide)

    async def _wait_until_effective(self, namespace: str) -> None:
        """Wait until the RBAC authorizer has observed the stored roles and bindings.

        It observes them in order. Permissions of a marker user are stored last. As soon as they are effective, the
        others are, too.
        """
        name = f"envtest:marker:{secrets.token_hex(4)}"
        cluster_role = _role(name, [{"nonResourceURLs": [f"/{name}"], "verbs": ["get"]}], "")
        configmap_rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]}
        namespaced_role = _role(name, [configmap_rule], namespace)
        markers = [
            cluster_role,
            _binding(name, cluster_role, name),
            namespaced_role,
            _binding(name, namespaced_role, name),
        ]
        review_specs = (
            SubjectAccessReviewSpec(
                user=name, non_resource_attributes=NonResourceAttributes(path=f"/{name}", verb="get")
            ),
            SubjectAccessReviewSpec(
                user=name,
                resource_attributes=ResourceAttributes(
                    namespace=namespace, resource="configmaps", name=name, verb="get"
                ),
            ),
        )

        async def is_effective() -> bool:
            reviews = [await self._client.create(SubjectAccessReview(spec=spec)) for spec in review_specs]
            return all(review.status.allowed for review in reviews)

        try:
            for manifest in markers:
                await self._installation.apply(manifest)
            if not await poll_until(is_effective):
                raise SteersmanError("new RBAC permissions are not effective: enable the authorization mode RBAC")
        finally:
            for manifest in reversed(markers):
                await self._installation.delete(manifest)


def _role(name: str, rules: Sequence[Mapping[str, Any]], namespace: str) -> Manifest:
    namespace_field = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, **namespace_field},
        "rules": [dict(rule) for rule in rules],
    }


def _binding(name: str, role: Manifest, user: str, namespace: str = "") -> Manifest:
    binding_namespace = role["metadata"].get("namespace") or namespace
    namespace_field = {"namespace": binding_namespace} if binding_namespace else {}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if binding_namespace else "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {_USER_LABEL: _user_label_value(name)}, **namespace_field},
        "roleRef": {"apiGroup": _GROUP, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }


def _user_label_value(name: str) -> str:
    """Return the user part of ``envtest:<user>:…``."""
    return name.split(":")[1]


def _selector_string(selector: LabelSelector) -> str:
    terms = [f"{key}={value}" for key, value in selector.match_labels.items()]
    expressions = selector.match_expressions
    terms += [_REQUIREMENT_FORMATS[each.operator].format(each.key, ",".join(each.values)) for each in expressions]
    return ",".join(terms)
