"""The ``@resource`` decorator for a kind of a CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman_cli.codegen.definitions import CrdKind
from steersman_cli.codegen.expressions import call, keyword_argument, literal, string_literal, tuple_literal
from steersman_cli.codegen.markers import AddImport, rules_literal

Schema = dict[str, Any]

# Tools annotate the manifest with these. They do not belong to the kind.
_TOOL_ANNOTATIONS = (
    "controller-gen.kubebuilder.io/version",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_COLUMN_OPTIONS = ("description", "priority", "format")


def resource_decorator(kind: CrdKind, add_import: AddImport) -> str:
    """The call of ``resource`` that decorates the class of ``kind``."""
    return call(add_import("steersman.meta", "resource"), *_arguments(kind, add_import))


def _arguments(kind: CrdKind, add_import: AddImport) -> Iterator[str]:
    spec, names, version = kind.manifest["spec"], kind.names, kind.version
    lower = names["kind"].lower()
    yield keyword_argument("group", string_literal(spec["group"]))
    yield keyword_argument("version", string_literal(version["name"]))
    defaults = {"kind": kind.class_name, "plural": f"{lower}s", "singular": lower, "listKind": f"{names['kind']}List"}
    for keyword, value in defaults.items():
        if names.get(keyword, value) != value:
            yield keyword_argument({"listKind": "list_kind"}.get(keyword, keyword), string_literal(names[keyword]))
    if spec["scope"] == "Cluster":
        yield keyword_argument("namespaced", "False")
    for keyword, argument in (("shortNames", "short_names"), ("categories", "categories")):
        if names.get(keyword):
            yield keyword_argument(argument, literal(names[keyword]))
    if columns := version.get("additionalPrinterColumns"):
        yield keyword_argument(
            "columns", tuple_literal(_column(c, add_import("steersman.meta", "PrinterColumn")) for c in columns)
        )
    yield from _subresources(version.get("subresources", {}), add_import)
    if fields := version.get("selectableFields"):
        yield keyword_argument("selectable_fields", literal([f["jsonPath"] for f in fields]))
    for keyword in ("served", "storage"):
        if not version[keyword]:
            yield keyword_argument(keyword, "False")
    if version.get("deprecated"):
        yield keyword_argument("deprecated", literal(version.get("deprecationWarning", True)))
    for keyword in ("labels", "annotations"):
        metadata: Schema = kind.manifest["metadata"].get(keyword) or {}
        if entries := {k: v for k, v in sorted(metadata.items()) if k not in _TOOL_ANNOTATIONS}:
            yield keyword_argument(keyword, literal(entries))
    if found := rules_literal(kind.schema, add_import):
        yield keyword_argument("rules", found)


def _subresources(found: Schema, add_import: AddImport) -> Iterator[str]:
    if "status" not in found:
        yield keyword_argument("status_subresource", "False")
    if scale := found.get("scale"):
        paths = [scale["specReplicasPath"], scale["statusReplicasPath"]]
        if scale.get("labelSelectorPath"):
            paths.append(scale["labelSelectorPath"])
        yield keyword_argument("scale", call(add_import("steersman.meta", "Scale"), *map(string_literal, paths)))


def _column(column: Schema, name: str) -> str:
    positional = [string_literal(column["name"]), string_literal(column["jsonPath"])]
    if column["type"] != "string":
        positional.append(string_literal(column["type"]))
    return call(
        name, *positional, *(keyword_argument(k, literal(column[k])) for k in _COLUMN_OPTIONS if column.get(k))
    )
