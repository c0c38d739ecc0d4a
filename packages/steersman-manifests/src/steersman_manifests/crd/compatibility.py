"""Comparison of two versions of a CustomResourceDefinition.

Source: "API change guidelines" of the Kubernetes community (``api_changes.md``); "Versions in
CustomResourceDefinitions".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman_manifests.crd.breaking_change import BreakingChange
from steersman_manifests.crd.schema_compatibility import compare_schemas

Manifest = dict[str, Any]

_NAME_FIELDS = {"kind": "kind", "plural": "plural", "listKind": "list kind", "singular": "singular"}


def breaking_changes(old: Manifest, new: Manifest) -> tuple[BreakingChange, ...]:
    """Find changes that break stored objects, manifests or clients.

    Args:
        old: CustomResourceDefinition (v1). Its ``status.storedVersions`` is honored if it comes from a cluster.
        new: CustomResourceDefinition (v1).
    """
    return (*_compare_names(old["spec"], new["spec"]), *_compare_versions(old, new))


def _compare_names(old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    if old["group"] != new["group"]:
        yield BreakingChange(
            rule="group-changed",
            message=f"the group changes from {old['group']} to {new['group']}: that is another kind",
            fix="keep the group; or install the new definition in addition to the old one, and move the objects",
        )
    if old["scope"] != new["scope"]:
        yield BreakingChange(
            rule="scope-changed",
            message=f"the scope changes from {old['scope']} to {new['scope']}: the API server rejects the change",
            fix="keep the scope; or declare another kind, and move the objects",
        )
    for field, name in _NAME_FIELDS.items():
        before, after = old["names"].get(field), new["names"].get(field)
        if before and before != after:
            yield BreakingChange(
                rule="name-changed",
                message=f"the {name} changes from {before} to {after}: clients, roles and scripts use the old one",
                fix=f"keep the {name}",
            )
    for name in old["names"].get("shortNames", ()):
        if name not in new["names"].get("shortNames", ()):
            yield BreakingChange(
                rule="name-changed",
                message=f"the short name {name} is removed: scripts use it",
                fix="keep it in addition to the new ones",
            )


def _compare_versions(old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    stored = old.get("status", {}).get("storedVersions", ())
    after = {v["name"]: v for v in new["spec"]["versions"]}
    for version in old["spec"]["versions"]:
        name = version["name"]
        if name in after:
            yield from _compare_version(version, after[name])
        elif name in stored:
            yield BreakingChange(
                version=name,
                rule="stored-version-removed",
                message=f"the version {name} is removed, but objects are still stored in it (status.storedVersions)",
                fix="write each object once in the new storage version, then remove the old version from "
                "status.storedVersions and from the definition",
            )
        elif version["served"]:
            yield BreakingChange(
                version=name,
                rule="version-removed",
                message=f"the version {name} is removed: manifests and clients that use it fail",
                fix="keep it with deprecated=True for the announced period, then with served=False, then remove it",
            )


def _compare_version(old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    name = old["name"]
    if old["served"] and not new["served"]:
        yield BreakingChange(
            version=name,
            rule="version-removed",
            message=f"the version {name} is no longer served: manifests and clients that use it fail",
            fix="serve it with deprecated=True for the announced period",
        )
    yield from _compare_subresources(name, old.get("subresources", {}), new.get("subresources", {}))
    selectable = [f["jsonPath"] for f in new.get("selectableFields", ())]
    for field in old.get("selectableFields", ()):
        if field["jsonPath"] not in selectable:
            yield BreakingChange(
                version=name,
                field=field["jsonPath"],
                rule="selectable-field-removed",
                message="field selectors no longer support the field: lists and watches with --field-selector fail",
                fix="keep it in selectable_fields",
            )
    yield from compare_schemas(name, _schema(old), _schema(new))


def _schema(version: Manifest) -> dict[str, Any]:
    return version.get("schema", {}).get("openAPIV3Schema", {"x-kubernetes-preserve-unknown-fields": True})


def _compare_subresources(version: str, old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    for name in old:
        if name not in new:
            yield BreakingChange(
                version=version,
                rule="subresource-removed",
                message=f"the subresource {name} is removed: clients that use it fail",
                fix="keep it",
            )
    before: Manifest = old.get("scale") or {}
    after: Manifest = new.get("scale") or {}
    for name, path in before.items():
        if name in after and after[name] != path:
            yield BreakingChange(
                version=version,
                field=path,
                rule="scale-path-changed",
                message=f"the scale's {name} changes to {after[name]}: autoscalers would change another field",
                fix="keep the path",
            )
