"""Templates of roles and bindings."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

import steersman.api
from steersman.meta.resource_names import ApiResource
from steersman_cli.packaging.chart.model import ChartModel
from steersman_cli.packaging.chart.template import conditional
from steersman_manifests.manifest_files import Manifest

_RBAC_CREATE = "$.Values.rbac.create"
_CERTIFICATES_BY_OPERATOR = 'eq $.Values.webhooks.certificates "self"'
_ALL_NAMESPACES = "not $.Values.watchNamespaces"


def rbac_templates(model: ChartModel) -> dict[str, str]:
    """Return the templates of roles and bindings, by path below ``templates/``."""
    files: dict[str, str] = {}
    role_bindings = model.manifests.role_bindings()
    cluster_wide = [(b, r) for b, r in role_bindings if b["kind"] == "ClusterRoleBinding"]
    done: list[int] = []
    for binding, role in cluster_wide:
        if id(role) not in done:
            files[_template_path(role)] = _operator_role(model, role, binding)
            done += [id(role), id(binding)]
    certificate_objects = _certificate_rbac(model)
    for manifest in (*model.manifests.roles, *model.manifests.bindings):
        if id(manifest) in done:
            continue
        name, text = _template_path(manifest), _render(model, manifest)
        text = conditional(_CERTIFICATES_BY_OPERATOR, text) if id(manifest) in certificate_objects else text
        files[name] = f"{files[name]}---\n{text}" if name in files else text
    return {name: conditional(_RBAC_CREATE, text) for name, text in files.items()}


def _certificate_rbac(model: ChartModel) -> set[int]:
    """Return the ``id`` of roles and bindings for the certificate's Secret."""
    if not model.has_webhook_certificates:
        return set()
    roles = [r for r in model.manifests.of_kind("Role") if _manages_certificate(model, r)]
    refs = [{"kind": "Role", "name": r["metadata"]["name"]}.items() for r in roles]
    bindings = [b for b in model.manifests.bindings if any(ref <= b["roleRef"].items() for ref in refs)]
    return {id(m) for m in (*roles, *bindings)}


def _manages_certificate(model: ChartModel, role: Manifest) -> bool:
    rules: list[dict[str, Any]] = role.get("rules") or []
    resource_names = [n for r in rules for n in r.get("resourceNames", ())]
    return resource_names == [model.names.certificate_secret] and all(
        r.get("resources") == ["secrets"] for r in rules
    )


def _template_path(manifest: Manifest) -> str:
    return f"rbac/{manifest['metadata']['name'].replace(':', '-')}.yaml"


def _render(model: ChartModel, manifest: Manifest) -> str:
    return model.template.render(_release_manifest(model, manifest))


def _release_manifest(model: ChartModel, manifest: Manifest) -> Manifest:
    found = model.names.release_manifest(manifest)
    if "rules" in found:
        found["rules"] = model.names.rules(found["rules"] or [], model.lease)
    if "roleRef" in found:
        found["subjects"] = model.names.subjects(found.get("subjects") or [])
        ref = found["roleRef"]
        known_roles = {(r["kind"], r["metadata"]["name"]) for r in model.manifests.roles}
        if (ref["kind"], ref["name"]) in known_roles:
            found["roleRef"] = {**ref, "name": model.names.release_name(ref["name"])}
    return found


def _operator_role(model: ChartModel, role: Manifest, binding: Manifest) -> str:
    """Render the operator's ClusterRole, or Roles in the watched namespaces.

    With watched namespaces, a ClusterRole keeps the rules of cluster-scoped resources.
    """
    cluster, namespaced = _split_rules(model, role.get("rules") or [])
    pair = [_release_manifest(model, role), _release_manifest(model, binding)]
    all_namespaces = "---\n".join(model.template.render(m) for m in pair)
    per_namespace = "---\n".join(
        model.template.render(_namespaced(model, m, namespaced if "rules" in m else None)) for m in pair
    )
    within = f"{{{{- range $.Values.watchNamespaces }}}}\n---\n{per_namespace}{{{{- end }}}}\n" if namespaced else ""
    cluster_template = ""
    if cluster:
        cluster_role = {**pair[0], "rules": model.names.rules(cluster, model.lease)}
        cluster_template = "---\n" + model.template.render(cluster_role) + "---\n" + model.template.render(pair[1])
    return (
        f"{{{{- if {_ALL_NAMESPACES} }}}}\n{all_namespaces}"
        f"{{{{- else }}}}\n{within}{cluster_template}{{{{- end }}}}\n"
    )


def _namespaced(model: ChartModel, manifest: Manifest, rules: list[dict[str, Any]] | None) -> Manifest:
    """Convert a cluster-wide role or binding to a namespaced one."""
    metadata = manifest["metadata"]
    namespaced_metadata = {"name": metadata["name"], "namespace": model.template.inline("{{ . }}")}
    found = {
        **manifest,
        "kind": manifest["kind"].removeprefix("Cluster"),
        "metadata": {**metadata, **namespaced_metadata},
    }
    if rules is not None:
        found["rules"] = model.names.rules(rules, model.lease)
    else:
        found["roleRef"] = {**found["roleRef"], "kind": "Role"}
    return found


def _split_rules(model: ChartModel, rules: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split rules into those for a ClusterRole and those for Roles."""
    scoped = model.cluster_scoped | _builtin_cluster_scoped()
    for definition in model.manifests.crds:
        spec = definition["spec"]
        if spec["scope"] == "Cluster":
            # Events of cluster-scoped objects are in the namespace default, which may not be watched.
            scoped |= {(spec["group"], spec["names"]["plural"]), ("events.k8s.io", "events"), ("", "events")}
    cluster: list[dict[str, Any]] = []
    namespaced: list[dict[str, Any]] = []
    for rule in rules:
        resources: list[str] = rule.get("resources", [])
        outside = [r for r in resources if _is_cluster_scoped(rule["apiGroups"], r, scoped)]
        inside = [r for r in resources if r not in outside]
        if outside or not resources:
            cluster.append({**rule, "resources": outside} if resources else rule)
        if inside:
            namespaced.append({**rule, "resources": inside})
    return cluster, namespaced


def _is_cluster_scoped(groups: list[str], resource: str, scoped: frozenset[tuple[str, str]]) -> bool:
    plural = resource.partition("/")[0]
    # A wildcard may include cluster-scoped resources.
    return "*" in (*groups, plural) or any((g, plural) in scoped for g in groups)


@cache
def _builtin_cluster_scoped() -> frozenset[tuple[str, str]]:
    """Return groups and plurals of built-in cluster-scoped kinds."""
    found: set[tuple[str, str]] = set()
    for module in pkgutil.iter_modules(steersman.api.__path__):
        if module.ispkg:
            continue
        for value in vars(import_module(f"steersman.api.{module.name}")).values():
            resource = getattr(value, "api_resource", None)
            if isinstance(resource, ApiResource) and not resource.namespaced:
                found.add((resource.group, resource.plural))
    return frozenset(found)
