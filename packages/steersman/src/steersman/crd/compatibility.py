"""What a new definition takes away from those who use the old one: objects, clients, manifests in Git.

Source: "API change guidelines" of the Kubernetes community (``api_changes.md``); "Versions in
CustomResourceDefinitions".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman.crd.breaking_change import BreakingChange
from steersman.crd.schema_compatibility import compare_schemas

Manifest = dict[str, Any]

_NAME_FIELDS = {"kind": "kind", "plural": "plural", "listKind": "list kind", "singular": "singular"}


def breaking_changes(old: Manifest, new: Manifest) -> tuple[BreakingChange, ...]:
    """Every change from ``old`` to ``new``, both CustomResourceDefinitions (v1), that breaks somebody's use.

    ``status.storedVersions`` of ``old`` is heeded, where it comes from a cluster.
    """
    return (*_compare_names(old["spec"], new["spec"]), *_compare_versions(old, new))


def _compare_names(old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    if old["group"] != new["group"]:
        yield BreakingChange(
            rule="group-changed",
            message=f"the group changes from {old['group']} to {new['group']}, which makes another kind",
            fix="keep the group; or install the new definition beside the old one, and move the objects",
        )
    if old["scope"] != new["scope"]:
        yield BreakingChange(
            rule="scope-changed",
            message=f"the scope changes from {old['scope']} to {new['scope']}, which the API server refuses",
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
                message=f"the short name {name} goes: scripts use it",
                fix="keep it beside the new ones",
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
                message=f"the version {name} goes, in which objects are still stored (status.storedVersions)",
                fix="write every object once in the new storage version, take it out of status.storedVersions, and "
                "remove it then",
            )
        elif version["served"]:
            yield BreakingChange(
                version=name,
                rule="version-removed",
                message=f"the version {name} goes: manifests and clients that use it fail",
                fix="keep it with deprecated=True as long as you promised, then with served=False; remove it then",
            )


def _compare_version(old: Manifest, new: Manifest) -> Iterator[BreakingChange]:
    name = old["name"]
    if old["served"] and not new["served"]:
        yield BreakingChange(
            version=name,
            rule="version-removed",
            message=f"the version {name} is not served any more: manifests and clients that use it fail",
            fix="serve it with deprecated=True for the time that you promised",
        )
    yield from _compare_subresources(name, old.get("subresources", {}), new.get("subresources", {}))
    selectable = [f["jsonPath"] for f in new.get("selectableFields", ())]
    for field in old.get("selectableFields", ()):
        if field["jsonPath"] not in selectable:
            yield BreakingChange(
                version=name,
                field=field["jsonPath"],
                rule="selectable-field-removed",
                message="the field cannot be selected by any more: lists and watches with --field-selector fail",
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
                message=f"the subresource {name} goes: clients that use it fail",
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
                message=f"the scale's {name} changes to {after[name]}: autoscalers change another field",
                fix="keep the path",
            )
