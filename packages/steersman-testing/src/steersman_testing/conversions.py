"""Round-trip tests of conversions between the versions of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_origin

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from steersman.errors import SteersmanError
from steersman.meta import FrozenDict, FrozenStruct, Object, decode_builtins, to_builtins
from steersman.meta.json_patch import diff
from steersman.webhook import Conversion, Spoke
from steersman.webhook.conversion import HUB_ANNOTATION
from steersman.webhook.type_hints import field_types_by_wire_name, unwrap_type
from steersman_manifests.crd import schema_of, violations
from steersman_testing.transitions.schema_strategies import document_strategy
from steersman_testing.transitions.value_generator import ValueGenerator

_Json = dict[str, Any]
ExamplePredicate = Callable[[Any], bool]

# Depth of examples for built-in types.
_MAX_DEPTH = 3


def assert_round_trips(
    conversion: Conversion[Any], *, examples: int = 100, where: ExamplePredicate | None = None
) -> None:
    """Convert generated objects of each version to the others and back.

    Checks for each pair of hub and spoke: A hub object is unchanged after a round trip. A spoke object is unchanged
    after a round trip, without stored annotations. An update of a spoke object is preserved, whatever the hub
    contained before. Converted objects are valid, since the API server does not validate them.

    Args:
        conversion: argument of ``Manager.conversion``.
        examples: number of objects per pair.
        where: predicate for valid objects beyond the schema, such as CEL rules.

    Raises:
        AssertionError: if an object changes, with the lost fields of a minimal example.
    """
    for spoke in conversion.spokes.values():
        _RoundTripCheck(conversion, spoke, where).check(examples)


class _RoundTripCheck:
    def __init__(self, conversion: Conversion[Any], spoke: Spoke[Any, Any], where: ExamplePredicate | None) -> None:
        self._conversion = conversion
        self._hub: type[Object] = conversion.hub
        self._spoke: type[Object] = spoke.kind
        self._where = where

    def check(self, examples: int) -> None:
        hubs, spokes = _object_strategy(self._hub), _object_strategy(self._spoke)
        hypothesis_settings = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )

        @hypothesis_settings
        @given(hub=hubs)
        def hub_round_trips(hub: _Json) -> None:
            self._assume(hub, self._hub)
            there = self._convert(hub, self._spoke)
            self._compare(hub, self._convert(there, self._hub), self._hub, "through", self._spoke)

        @hypothesis_settings
        @given(spoke=spokes)
        def spoke_round_trips(spoke: _Json) -> None:
            self._assume(spoke, self._spoke)
            there = self._convert(spoke, self._hub)
            self._compare(spoke, self._convert(there, self._spoke), self._spoke, "through", self._hub)

        @hypothesis_settings
        @given(hub=hubs, spoke=spokes)
        def spoke_update_is_preserved(hub: _Json, spoke: _Json) -> None:
            self._assume(hub, self._hub)
            self._assume(spoke, self._spoke)
            seen = self._convert(hub, self._spoke)
            changed = {**spoke, "metadata": seen["metadata"]}
            back = self._convert(self._convert(changed, self._hub), self._spoke)
            self._compare(spoke, _without_hub_annotation(back), self._spoke, "changed by a user, through", self._hub)

        for property_test in (hub_round_trips, spoke_round_trips, spoke_update_is_preserved):
            property_test()

    def _assume(self, document: _Json, kind: type[Object]) -> None:
        obj = decode_builtins(document, kind)
        # Generated strings do not always match complex patterns.
        assume(not violations(obj))
        if self._where is not None:
            assume(self._where(obj))

    def _convert(self, document: _Json, kind: type[Object]) -> _Json:
        version = kind.api_resource.version
        try:
            converted = self._conversion.convert(document, kind.api_resource.api_version)
        except SteersmanError as error:
            raise AssertionError(f"{document} does not become {version}: {error}") from error
        if found := violations(decode_builtins(converted, kind)):
            source_version = document["apiVersion"].rpartition("/")[2]
            problem = f"{source_version} becomes a {version} that the API server would reject"
            raise AssertionError(f"{problem}: {'; '.join(found)}; it was {document}")
        return converted

    def _compare(
        self, before: _Json, after: _Json, kind: type[Object], description: str, other: type[Object]
    ) -> None:
        expected, actual = decode_builtins(before, kind), decode_builtins(after, kind)
        if expected == actual:
            return
        version, by = kind.api_resource.version, other.api_resource.version
        changes = [_describe_patch(change) for change in diff(to_builtins(expected), to_builtins(actual))]
        raise AssertionError(f"{version} {description} {by} is changed: {', '.join(changes)}; it was {before}")


def _object_strategy(kind: type[Object]) -> st.SearchStrategy[_Json]:
    parts = {f.encode_name: f for f in fields(kind) if f.name != "metadata"}
    schemas = {
        name: document_strategy(_limit_builtin_examples(schema_of(_unwrap_optional(f.type)), f.type))
        for name, f in parts.items()
    }
    required = {name: schema for name, schema in schemas.items() if parts[name].required}
    optional = {name: schema for name, schema in schemas.items() if not parts[name].required}
    head = {"apiVersion": kind.api_resource.api_version, "kind": kind.api_resource.kind}
    metadata = {"name": "generated", "namespace": "default", "uid": "1", "labels": {"a": "b"}}
    content = st.fixed_dictionaries(required, optional=optional)
    return content.map(lambda content: {**head, "metadata": metadata, **content})


def _unwrap_optional(hint: Any) -> Any:
    members = [m for m in getattr(hint, "__args__", ()) if m is not type(None)]
    return members[0] if members else hint


def _limit_builtin_examples(schema: _Json, hint: Any) -> _Json:
    """Replace schemas of built-in types in ``schema`` by a few examples.

    Built-in types are equal in all versions and very large. Generating a pod template would take most of the time.
    """
    hint = unwrap_type(hint)
    if isinstance(hint, type) and issubclass(hint, FrozenStruct) and "properties" in schema:
        if hint.__module__.startswith("steersman.api."):
            return {"enum": [_fill_to_depth(schema, depth) for depth in range(_MAX_DEPTH)]}
        known = field_types_by_wire_name(hint)
        properties = {
            n: _limit_builtin_examples(s, known[n]) if n in known else s for n, s in schema["properties"].items()
        }
        return {**schema, "properties": properties}
    if get_origin(hint) is tuple and "items" in schema:
        return {**schema, "items": _limit_builtin_examples(schema["items"], get_args(hint)[0])}
    if get_origin(hint) is FrozenDict and isinstance(schema.get("additionalProperties"), dict):
        return {
            **schema,
            "additionalProperties": _limit_builtin_examples(schema["additionalProperties"], get_args(hint)[1]),
        }
    return schema


def _fill_to_depth(schema: _Json, depth: int) -> Any:
    """Object with all required fields, and with optional fields down to ``depth``."""
    if schema.get("type") != "object" or "properties" not in schema:
        return ValueGenerator().simplest(schema)
    required = schema.get("required", ())
    return {
        name: _fill_to_depth(inner, depth - 1)
        for name, inner in schema["properties"].items()
        if name in required or (depth > 0 and (depth > 1 or inner.get("type") != "object"))
    }


def _without_hub_annotation(document: _Json) -> _Json:
    """Return ``document`` without the annotation in which a conversion stores hub fields."""
    annotations = {k: v for k, v in document["metadata"].get("annotations", {}).items() if k != HUB_ANNOTATION}
    metadata = {k: v for k, v in document["metadata"].items() if k != "annotations"}
    return {**document, "metadata": metadata | ({"annotations": annotations} if annotations else {})}


def _describe_patch(change: _Json) -> str:
    path = change["path"].lstrip("/").replace("/", ".")
    return f"{path} is lost" if change["op"] == "remove" else f"{path} is {change['value']!r}"
