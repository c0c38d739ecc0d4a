"""The CustomResourceDefinition manifest of a kind, in one version or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from steersman.meta import FrozenStruct, Object, Resource
from steersman.meta.custom_resource import is_decorated, resource_options
from steersman.webhook import ConversionWebhook
from steersman_manifests.crd.costs import check_costs
from steersman_manifests.crd.docstrings import class_docstring
from steersman_manifests.crd.errors import SchemaError, error_context
from steersman_manifests.crd.names import check_names, version_sort_key
from steersman_manifests.crd.rules import Schema, with_rules
from steersman_manifests.crd.schema import fields_schema, schema_of
from steersman_manifests.crd.subresources import printer_columns, scale_subresource, selectable_fields
from steersman_manifests.crd.v1beta1 import to_v1beta1

Kind = type[Object]

# Options that all versions of a kind share.
_SHARED_OPTIONS = ("short_names", "categories", "singular", "list_kind", "labels", "annotations")


def definition(
    *kinds: Kind,
    conversion: ConversionWebhook | None = None,
    builtin_descriptions: bool = False,
    api_version: Literal["v1", "v1beta1"] = "v1",
) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, in wire form.

    Args:
        kinds: the classes of one kind, one per version, in any order. Exactly one is the storage version.
        conversion: webhook that converts between versions. Defaults to None: only apiVersion changes.
        builtin_descriptions: keep the descriptions of built-in types, such as PodTemplateSpec. They make the manifest
            many times larger. Defaults to False.
        api_version: defaults to ``v1``. ``v1beta1`` is for Kubernetes before 1.16. CEL rules and selectable fields
            are left out there.

    Raises:
        SchemaError: a class was not declared with ``@resource``, a field's type cannot be expressed, markers
            contradict each other, or the versions do not fit together.
    """
    if not kinds:
        raise SchemaError("no kind is given: write definition(MyKind)")
    for kind in kinds:
        if not is_decorated(kind):
            raise SchemaError(f"{kind.__name__} is not declared: put @resource(group=…, version=…) above the class")
        with error_context(kind.__name__):
            check_names(kind.api_resource, resource_options(kind))
    _check_versions(kinds)
    stored = next(k for k in kinds if resource_options(k).storage)
    ordered = sorted(kinds, key=lambda k: version_sort_key(k.api_resource.version))
    manifest = _manifest(stored, [_version_entry(k, builtin_descriptions) for k in ordered])
    if conversion is not None:
        if len(kinds) == 1:
            raise SchemaError(f"{stored.__name__} has one version, which needs no conversion: remove the conversion")
        manifest["spec"]["conversion"] = conversion.to_wire()
    return to_v1beta1(manifest) if api_version == "v1beta1" else manifest


def definitions(*kinds: Kind, builtin_descriptions: bool = False) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of several kinds, each with its versions in ``kinds``.

    Raises:
        SchemaError: as ``definition``.
    """
    by_kind: dict[tuple[str, str], dict[Kind, None]] = {}
    for kind in kinds:
        resource = kind.api_resource
        by_kind.setdefault((resource.group, resource.kind), {})[kind] = None
    return [definition(*versions, builtin_descriptions=builtin_descriptions) for versions in by_kind.values()]


def _manifest(stored: Kind, versions: list[dict[str, Any]]) -> dict[str, Any]:
    resource, options = stored.api_resource, resource_options(stored)
    names: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": options.list_kind,
        "plural": resource.plural,
        "singular": options.singular,
    }
    if options.short_names:
        names["shortNames"] = list(options.short_names)
    if options.categories:
        names["categories"] = list(options.categories)
    metadata: dict[str, Any] = {"name": f"{resource.plural}.{resource.group}"}
    if options.labels:
        metadata["labels"] = dict(options.labels)
    if options.annotations:
        metadata["annotations"] = dict(options.annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": versions,
        },
    }


def _version_entry(kind: Kind, builtin_descriptions: bool) -> dict[str, Any]:
    options = resource_options(kind)
    schema = object_schema(kind, builtin_descriptions)
    with error_context(kind.__name__):
        subresources: dict[str, Any] = {"status": {}} if options.status_subresource else {}
        if options.scale is not None:
            subresources["scale"] = scale_subresource(options.scale, schema)
        version: dict[str, Any] = {"name": kind.api_resource.version, "served": options.served}
        version["storage"] = options.storage
        if options.deprecated:
            version["deprecated"] = True
        if isinstance(options.deprecated, str):
            version["deprecationWarning"] = options.deprecated
        version |= {"schema": {"openAPIV3Schema": schema}, "subresources": subresources}
        version["additionalPrinterColumns"] = printer_columns(options.columns, schema)
        if options.selectable_fields:
            version["selectableFields"] = selectable_fields(options.selectable_fields, schema)
    return version


def object_schema(kind: Kind, builtin_descriptions: bool) -> Schema:
    """The schema of objects of ``kind``. Raises SchemaError as ``definition``."""
    rules = resource_options(kind).rules
    metadata: Schema = {"type": "object"}
    if any(r.field_path == ".metadata.name" for r in rules):
        # A fieldPath must exist in the schema. Of metadata, a schema may declare name and generateName only.
        metadata["properties"] = {"name": {"type": "string"}}
    with error_context(kind.__name__):
        fields = _object_fields(kind, builtin_descriptions)
        schema: Schema = {
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": metadata,
                **fields.pop("properties"),
            },
            **fields,
        }
        if text := class_docstring(kind):
            schema = {"description": text, **schema}
        schema = with_rules(schema, rules, correlatable=True, root=True)
        check_costs(schema)
        return schema


def _object_fields(kind: Kind, builtin_descriptions: bool) -> Schema:
    """``properties`` and ``required`` of the kind, without metadata."""
    if Resource not in kind.__mro__:
        # A kind that others define has other fields than spec and status.
        return fields_schema(kind, without="metadata", builtin_descriptions=builtin_descriptions)
    parts = zip(("spec", "status"), _type_arguments(kind), strict=True)
    properties = {name: schema_of(part, builtin_descriptions=builtin_descriptions) for name, part in parts}
    return {"properties": properties, "required": ["spec"]}


def _type_arguments(kind: Kind) -> tuple[type[FrozenStruct], type[FrozenStruct]]:
    for base in getattr(kind, "__orig_bases__", ()):
        if get_origin(base) is Resource:
            spec, status = get_args(base)
            return spec, status
    raise SchemaError(f"{kind.__name__} must derive from Resource[Spec, Status] directly")


def _check_versions(kinds: Sequence[Kind]) -> None:
    """Check that ``kinds`` are versions of one kind, with one storage version."""
    first, *others = kinds
    for other in others:
        for name in ("group", "kind", "plural", "namespaced"):
            expected, actual = getattr(first.api_resource, name), getattr(other.api_resource, name)
            if expected != actual:
                raise SchemaError(
                    f"{_describe_version(first)} has the {name} {expected!r}, "
                    f"{_describe_version(other)} {actual!r}: versions of one kind "
                    "need the same; call definition once per kind"
                )
        for name in _SHARED_OPTIONS:
            expected, actual = getattr(resource_options(first), name), getattr(resource_options(other), name)
            if expected != actual:
                raise SchemaError(
                    f"{_describe_version(first)} and {_describe_version(other)} have different "
                    f"{name}, {expected!r} and {actual!r}: declare "
                    "the same in each version"
                )
    versions = Counter(k.api_resource.version for k in kinds)
    for version, count in versions.items():
        if count > 1:
            raise SchemaError(f"{first.api_resource.kind} has the version {version} {count} times: give each its own")
    _check_storage(kinds)


def _check_storage(kinds: Sequence[Kind]) -> None:
    stored = [k for k in kinds if resource_options(k).storage]
    if not stored:
        raise SchemaError(
            f"no version of {kinds[0].api_resource.kind} is stored: pass the storage version too, or remove "
            "storage=False from one"
        )
    if len(stored) > 1:
        names = " and ".join(_describe_version(k) for k in stored)
        raise SchemaError(f"{names} are both stored: set storage=False for all but one")
    if not resource_options(stored[0]).served:
        raise SchemaError(
            f"{_describe_version(stored[0])} is stored but not served, so that clients cannot move its "
            "objects to another version: "
            "store a version that is served first"
        )


def _describe_version(kind: Kind) -> str:
    return f"{kind.__name__} ({kind.api_resource.version})"
