"""The CustomResourceDefinition manifest of a kind."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_origin

from steersman.crd.schema import Schema, SchemaError, rules_of, schema_of
from steersman.meta import FrozenStruct, PrinterColumn, Resource

_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


def definition(kind: type[Resource[Any, Any]]) -> dict[str, Any]:
    """The ``apiextensions.k8s.io/v1`` manifest for ``kind``, in wire form.

    Raises:
        SchemaError: ``kind`` was not declared with ``@resource``, or a field's type cannot be expressed.
    """
    if "api_resource" not in vars(kind):
        raise SchemaError(f"{kind.__name__} is not declared: put @resource(group=…, version=…) above the class")
    resource, options = kind.api_resource, kind.resource_options
    names: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if options.short_names:
        names["shortNames"] = list(options.short_names)
    if options.categories:
        names["categories"] = list(options.categories)
    subresources: dict[str, Any] = {"status": {}}
    if options.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": options.scale.spec_replicas_path,
            "statusReplicasPath": options.scale.status_replicas_path,
        }
        if options.scale.label_selector_path:
            subresources["scale"]["labelSelectorPath"] = options.scale.label_selector_path
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": [_column(c) for c in (*options.columns, _AGE)],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _object_schema(kind: type[Resource[Any, Any]]) -> Schema:
    spec, status = _type_arguments(kind)
    schema: Schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema_of(spec),
            "status": schema_of(status),
        },
        "required": ["spec"],
    }
    if kind.__doc__:
        schema = {"description": inspect.cleandoc(kind.__doc__), **schema}
    if kind.resource_options.rules:
        schema["x-kubernetes-validations"] = rules_of(kind.resource_options.rules)
    return schema


def _type_arguments(kind: type[Resource[Any, Any]]) -> tuple[type[FrozenStruct], type[FrozenStruct]]:
    for base in getattr(kind, "__orig_bases__", ()):
        if get_origin(base) is Resource:
            spec, status = get_args(base)
            return spec, status
    raise SchemaError(f"{kind.__name__} must derive from Resource[Spec, Status] directly")


def _column(column: PrinterColumn) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.description:
        wire["description"] = column.description
    if column.priority:
        wire["priority"] = column.priority
    return wire
