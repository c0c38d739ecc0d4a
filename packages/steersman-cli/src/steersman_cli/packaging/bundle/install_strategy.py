"""Install strategy of a bundle. Source: OLM, ``StrategyDetailsDeployment``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.errors import ConfigurationError
from steersman_cli.packaging.bundle.operator_info import OperatorInfo
from steersman_cli.packaging.bundle.settings import ALL_NAMESPACES, InstallMode
from steersman_cli.packaging.bundle.webhooks import OLM_CERTIFICATE_PATH, webhook_definitions
from steersman_cli.packaging.operator_manifests import OperatorManifests, object_identity
from steersman_manifests.manifest_files import Manifest

_WATCH_NAMESPACE_VARIABLE = "WATCH_NAMESPACE"
# Verbs of the framework's rules that inject CA bundles.
_CA_INJECTION_VERBS = {"get", "watch", "patch"}


def install_strategy(operator: OperatorInfo, modes: Sequence[InstallMode]) -> dict[str, Any]:
    """Build ``spec.install.spec`` of the ClusterServiceVersion: Deployments and permissions.

    Args:
        operator: the operator.
        modes: supported install modes.

    Raises:
        ConfigurationError: the manager has the argument ``--namespaces``.
    """
    installation = operator.manifests
    account = installation.service_account["metadata"]["name"]
    rules: dict[str, list[Any]] = {"clusterPermissions": [], "permissions": []}
    for binding, role in installation.role_bindings():
        scope = "clusterPermissions" if binding["kind"] == "ClusterRoleBinding" else "permissions"
        rules[scope] += _required_rules(operator, role)
    granted = {where: [{"serviceAccountName": account, "rules": found}] for where, found in rules.items() if found}
    return {**granted, "deployments": _deployments(operator, modes)}


def _required_rules(operator: OperatorInfo, role: Manifest) -> list[dict[str, Any]]:
    """Return the rules of ``role`` without those for self-managed certificates."""
    rules: list[dict[str, Any]] = role.get("rules") or []
    serving = operator.manager.options.webhooks
    if serving is None or serving.cert_path:
        return rules
    targets = {(r.group, r.plural, name) for r, name in operator.manager.webhooks.ca_bundle_targets(serving)}
    secret = ("", "secrets", serving.secret_name)
    if any(_named_objects(rule) == {secret} for rule in rules):
        # RBAC cannot restrict create to a name, so this rule is separate.
        rules = [
            r
            for r in rules
            if _named_objects(r) != {secret} and not (r["resources"] == ["secrets"] and r["verbs"] == ["create"])
        ]
    return [
        r
        for r in rules
        if not _named_objects(r) or not _named_objects(r) <= targets or not set(r["verbs"]) <= _CA_INJECTION_VERBS
    ]


def _named_objects(rule: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return group, resource and name of each object that a rule names."""
    groups, resources, names = rule.get("apiGroups", ()), rule.get("resources", ()), rule.get("resourceNames", ())
    return {(group, resource, name) for group in groups for resource in resources for name in names}


def _deployments(operator: OperatorInfo, modes: Sequence[InstallMode]) -> list[dict[str, Any]]:
    installation = operator.manifests
    found = [m for m in installation.with_image(operator.image) if m["kind"] == "Deployment"]
    for deployment in found:
        if object_identity(deployment) == object_identity(installation.deployment):
            _adapt_to_olm(installation, deployment, modes)
    return [
        {"name": d["metadata"]["name"], "label": d["metadata"].get("labels", {}), "spec": d["spec"]} for d in found
    ]


def _adapt_to_olm(installation: OperatorManifests, deployment: Manifest, modes: Sequence[InstallMode]) -> None:
    """Let the manager use the namespaces and the certificate of OLM."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    manager = next(c for c in containers if c["name"] == installation.container["name"])
    arguments: list[str] = manager.setdefault("args", [])
    if any(a.startswith("--namespace") for a in arguments):
        raise ConfigurationError(
            "config/manager sets --namespaces, but OLM selects the namespaces: remove the argument"
        )
    if tuple(modes) != ALL_NAMESPACES:
        arguments.append(f"--namespaces=$({_WATCH_NAMESPACE_VARIABLE})")
        field_source = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
        manager.setdefault("env", []).append({"name": _WATCH_NAMESPACE_VARIABLE, "valueFrom": field_source})
    if webhook_definitions(installation):
        arguments.append(f"--webhook-cert-path={OLM_CERTIFICATE_PATH}")
