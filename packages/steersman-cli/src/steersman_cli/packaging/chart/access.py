"""Roles and bindings as templates."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

import steersman.api
from steersman.meta.manifests import Manifest
from steersman.meta.object import ApiResource
from steersman_cli.packaging.chart.parts import Parts
from steersman_cli.packaging.chart.text import under

_CREATED = "$.Values.rbac.create"
_BY_OPERATOR = 'eq $.Values.webhooks.certificates "self"'
_EVERYWHERE = "not $.Values.watchNamespaces"


def access(parts: Parts) -> dict[str, str]:
    """The templates of roles and bindings, by their paths below ``templates/``."""
    files: dict[str, str] = {}
    granted = parts.installation.granted()
    narrowed = [(b, r) for b, r in granted if b["kind"] == "ClusterRoleBinding"]
    done: list[int] = []
    for binding, role in narrowed:
        if id(role) not in done:
            files[_path(role)] = _operators(parts, role, binding)
            done += [id(role), id(binding)]
    unneeded = _for_certificate(parts)
    for manifest in (*parts.installation.roles, *parts.installation.bindings):
        if id(manifest) in done:
            continue
        name, text = _path(manifest), _whole(parts, manifest)
        text = under(_BY_OPERATOR, text) if id(manifest) in unneeded else text
        files[name] = f"{files[name]}---\n{text}" if name in files else text
    return {name: under(_CREATED, text) for name, text in files.items()}


def _for_certificate(parts: Parts) -> set[int]:
    """The roles and bindings, by identity, that are for the Secret of a certificate which others may keep."""
    if not parts.has_certificates:
        return set()
    roles = [r for r in parts.installation.of("Role") if _keeps_certificate(parts, r)]
    refs = [{"kind": "Role", "name": r["metadata"]["name"]}.items() for r in roles]
    bound = [b for b in parts.installation.bindings if any(ref <= b["roleRef"].items() for ref in refs)]
    return {id(m) for m in (*roles, *bound)}


def _keeps_certificate(parts: Parts, role: Manifest) -> bool:
    rules: list[dict[str, Any]] = role.get("rules") or []
    about = [n for r in rules for n in r.get("resourceNames", ())]
    return about == [parts.names.certificate] and all(r.get("resources") == ["secrets"] for r in rules)


def _path(manifest: Manifest) -> str:
    return f"rbac/{manifest['metadata']['name'].replace(':', '-')}.yaml"


def _whole(parts: Parts, manifest: Manifest) -> str:
    """One role or binding, in a release."""
    return parts.text.write(_in_release(parts, manifest))


def _in_release(parts: Parts, manifest: Manifest) -> Manifest:
    found = parts.names.manifest(manifest)
    if "rules" in found:
        found["rules"] = parts.names.rules(found["rules"] or [], parts.lease)
    if "roleRef" in found:
        found["subjects"] = parts.names.subjects(found.get("subjects") or [])
        ref = found["roleRef"]
        own = {(r["kind"], r["metadata"]["name"]) for r in parts.installation.roles}
        if (ref["kind"], ref["name"]) in own:
            found["roleRef"] = {**ref, "name": parts.names.of(ref["name"])}
    return found


def _operators(parts: Parts, role: Manifest, binding: Manifest) -> str:
    """A role of the operator's own: for the whole cluster, or in the namespaces that it watches.

    In the latter case a ClusterRole is left with what is in no namespace.
    """
    cluster, namespaced = _told_apart(parts, role.get("rules") or [])
    pair = [_in_release(parts, role), _in_release(parts, binding)]
    everywhere = "---\n".join(parts.text.write(m) for m in pair)
    per_namespace = "---\n".join(
        parts.text.write(_within(parts, m, namespaced if "rules" in m else None)) for m in pair
    )
    within = f"{{{{- range $.Values.watchNamespaces }}}}\n---\n{per_namespace}{{{{- end }}}}\n" if namespaced else ""
    rest = ""
    if cluster:
        left = {**pair[0], "rules": parts.names.rules(cluster, parts.lease)}
        rest = "---\n" + parts.text.write(left) + "---\n" + parts.text.write(pair[1])
    return f"{{{{- if {_EVERYWHERE} }}}}\n{everywhere}{{{{- else }}}}\n{within}{rest}{{{{- end }}}}\n"


def _within(parts: Parts, manifest: Manifest, rules: list[dict[str, Any]] | None) -> Manifest:
    """A cluster-wide role or binding as one of the namespace that a ``range`` is at."""
    metadata = manifest["metadata"]
    place = {"name": metadata["name"], "namespace": parts.text.inline("{{ . }}")}
    found = {**manifest, "kind": manifest["kind"].removeprefix("Cluster"), "metadata": {**metadata, **place}}
    if rules is not None:
        found["rules"] = parts.names.rules(rules, parts.lease)
    else:
        found["roleRef"] = {**found["roleRef"], "kind": "Role"}
    return found


def _told_apart(parts: Parts, rules: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rules that only a ClusterRole can give, and those that Roles can."""
    scoped = parts.cluster_scoped | _builtin()
    for definition in parts.installation.definitions:
        spec = definition["spec"]
        if spec["scope"] == "Cluster":
            # Events of objects in no namespace are in one that is not watched.
            scoped |= {(spec["group"], spec["names"]["plural"]), ("events.k8s.io", "events"), ("", "events")}
    cluster: list[dict[str, Any]] = []
    namespaced: list[dict[str, Any]] = []
    for rule in rules:
        resources: list[str] = rule.get("resources", [])
        outside = [r for r in resources if _is_outside(rule["apiGroups"], r, scoped)]
        inside = [r for r in resources if r not in outside]
        if outside or not resources:
            cluster.append({**rule, "resources": outside} if resources else rule)
        if inside:
            namespaced.append({**rule, "resources": inside})
    return cluster, namespaced


def _is_outside(groups: list[str], resource: str, scoped: frozenset[tuple[str, str]]) -> bool:
    plural = resource.partition("/")[0]
    # What a wildcard stands for nobody knows.
    return "*" in (*groups, plural) or any((g, plural) in scoped for g in groups)


@cache
def _builtin() -> frozenset[tuple[str, str]]:
    """Groups and plurals of Kubernetes' own kinds that are in no namespace."""
    found: set[tuple[str, str]] = set()
    for module in pkgutil.iter_modules(steersman.api.__path__):
        if module.ispkg:
            continue
        for value in vars(import_module(f"steersman.api.{module.name}")).values():
            resource = getattr(value, "api_resource", None)
            if isinstance(resource, ApiResource) and not resource.namespaced:
                found.add((resource.group, resource.plural))
    return frozenset(found)
