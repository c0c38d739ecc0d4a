"""Structs of definitions that are Kubernetes' own types, so that there is a class for them already."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from steersman.api.openapi import published
from steersman.crd.builtin import EMBEDDED_METADATA, QUANTITY, builtin_schema
from steersman.crd.errors import SchemaError
from steersman.crd.schema import schema_of
from steersman.meta import Condition

Schema = dict[str, Any]

_PACKAGES = {
    "io.k8s.apimachinery.pkg.apis.meta.v1": "meta_v1",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1": "apiextensions_v1",
}
# So many fields are the same by no accident.
_TELLING = 4
_REFERENCES = {"name", "optional", "items", "defaultMode"}


class Builtin(NamedTuple):
    """A class of the framework, to read and to apply: module and name of each."""

    read: tuple[str, str]
    apply: tuple[str, str]


_OWN = {
    "Condition": Builtin(("steersman.meta", "Condition"), ("steersman.api.apply.meta_v1", "ConditionApply")),
    "ObjectMeta": Builtin(("steersman.meta", "ObjectMeta"), ("steersman.meta", "TemplateMetaApply")),
}


def builtin(schema: Schema) -> Builtin | None:
    """The class of the framework that ``schema`` describes in every field, or None.

    Where several have the same fields, as selectors of keys in Secrets and ConfigMaps do, or where the fields are
    few, as a name and a namespace, the descriptions decide.
    """
    if "properties" not in schema:
        return None
    candidates = _by_form().get(_form(schema), ())
    if len(candidates) == 1 and len(schema["properties"]) >= _TELLING:
        return candidates[0][1]
    texts = _texts(schema)
    fitting = [known for name, known in candidates if any(texts.values()) and texts == _published_texts(name)]
    return fitting[0] if len(fitting) == 1 else None


@cache
def _by_form() -> dict[bytes, tuple[tuple[str, Builtin], ...]]:
    found: dict[bytes, tuple[tuple[str, Builtin], ...]] = {
        _form(schema_of(Condition)): (("", _OWN["Condition"]),),
        _form(EMBEDDED_METADATA): (("", _OWN["ObjectMeta"]),),
    }
    for name in sorted(published()):
        known = _classes(name)
        schema = _schema(name) if known else None
        if known is None or schema is None or "properties" not in schema:
            continue
        form = _form(schema)
        found[form] = (*found.get(form, ()), (name, known))
    return found


def _schema(name: str) -> Schema | None:
    try:
        return builtin_schema(name, descriptions=False)
    except SchemaError:
        return None


def _classes(name: str) -> Builtin | None:
    package, _, kind = name.rpartition(".")
    group, _, version = package.removeprefix("io.k8s.api.").partition(".")
    module = _PACKAGES.get(package, f"{group}_{version}")
    read, apply = (f"steersman.api.{module}", kind), (f"steersman.api.apply.{module}", f"{kind}Apply")
    if not all(_exists(*place) for place in (read, apply)):
        return None
    return Builtin(read, apply)


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return False


def _texts(schema: Schema) -> dict[str, str]:
    return {n: " ".join(p.get("description", "").split()) for n, p in schema.get("properties", {}).items()}


def _published_texts(name: str) -> dict[str, str]:
    return _texts(published()[name])


def _is_reference(schema: Schema) -> bool:
    return "name" in schema["properties"] and set(schema["properties"]) <= _REFERENCES


def _form(schema: Schema) -> bytes:
    """Two schemas of the same form take the same objects, but for what Kubernetes publishes of its types in vain."""
    return msgspec.json.encode(_mapped(schema, _plain), order="sorted")


def _plain(schema: Schema) -> Schema:
    result = {k: v for k, v in schema.items() if k != "description"}
    properties = schema.get("properties", {})
    if "required" in schema:
        # A condition may be without a time and a message.
        lax = ("lastTransitionTime", "message") if {"lastTransitionTime", "reason"} <= set(properties) else ()
        result["required"] = sorted(name for name in schema["required"] if name not in lax)
    if "properties" in schema and _is_reference(schema):
        # controller-gen gives structs the map type of those that are embedded in them.
        result.pop("x-kubernetes-map-type", None)
    if is_quantity(schema):
        result["pattern"] = QUANTITY["pattern"]
    return result


def is_quantity(schema: Schema) -> bool:
    """Whether the values are amounts such as 10Gi."""
    return bool(schema.get("x-kubernetes-int-or-string")) and "(([KMGTPE]i)|[numkMGTPE]|" in schema.get("pattern", "")


def _mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    result = dict(schema)
    if "properties" in result:
        result["properties"] = {name: _mapped(inner, change) for name, inner in result["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), dict):
            result[keyword] = _mapped(result[keyword], change)
    return change(result)
