"""``@resource(…)`` of a kind that a definition declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from steersman_cli.codegen.definitions import Kind
from steersman_cli.codegen.layout import Expression, call, literal, named, sequence, text
from steersman_cli.codegen.markers import rules

Schema = dict[str, Any]
Use = Callable[[str, str], str]

# Written by tools about the manifest, not about the kind.
_OF_TOOLS = (
    "controller-gen.kubebuilder.io/version",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_COLUMN = ("description", "priority", "format")


def declaration(kind: Kind, use: Use) -> Expression:
    """The decorator of the class of ``kind``; ``use`` imports what it needs."""
    return call(use("steersman.meta", "resource"), *_arguments(kind, use))


def _arguments(kind: Kind, use: Use) -> Iterator[Expression]:
    spec, names, version = kind.manifest["spec"], kind.names, kind.version
    lower = names["kind"].lower()
    yield named("group", text(spec["group"]))
    yield named("version", text(version["name"]))
    usual = {"kind": kind.class_name, "plural": f"{lower}s", "singular": lower, "listKind": f"{names['kind']}List"}
    for keyword, value in usual.items():
        if names.get(keyword, value) != value:
            yield named({"listKind": "list_kind"}.get(keyword, keyword), text(names[keyword]))
    if spec["scope"] == "Cluster":
        yield named("namespaced", "False")
    for keyword, argument in (("shortNames", "short_names"), ("categories", "categories")):
        if names.get(keyword):
            yield named(argument, literal(names[keyword]))
    if columns := version.get("additionalPrinterColumns"):
        yield named("columns", sequence(_column(c, use("steersman.meta", "PrinterColumn")) for c in columns))
    yield from _subresources(version.get("subresources", {}), use)
    if fields := version.get("selectableFields"):
        yield named("selectable_fields", literal([f["jsonPath"] for f in fields]))
    for keyword in ("served", "storage"):
        if not version[keyword]:
            yield named(keyword, "False")
    if version.get("deprecated"):
        yield named("deprecated", literal(version.get("deprecationWarning", True)))
    for keyword in ("labels", "annotations"):
        told: Schema = kind.manifest["metadata"].get(keyword) or {}
        if kept := {k: v for k, v in sorted(told.items()) if k not in _OF_TOOLS}:
            yield named(keyword, literal(kept))
    if found := rules(kind.schema):
        yield named("rules", found)


def _subresources(found: Schema, use: Use) -> Iterator[Expression]:
    if "status" not in found:
        yield named("status_subresource", "False")
    if scale := found.get("scale"):
        paths = [scale["specReplicasPath"], scale["statusReplicasPath"]]
        if scale.get("labelSelectorPath"):
            paths.append(scale["labelSelectorPath"])
        yield named("scale", call(use("steersman.meta", "Scale"), *map(text, paths)))


def _column(column: Schema, name: str) -> Expression:
    positional = [text(column["name"]), text(column["jsonPath"])]
    if column["type"] != "string":
        positional.append(text(column["type"]))
    return call(name, *positional, *(named(k, literal(column[k])) for k in _COLUMN if column.get(k)))
