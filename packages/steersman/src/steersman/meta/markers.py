"""Schema markers for Python types: bounds, list types, rules.

``steersman_manifests.crd`` reads them and msgspec ignores them. Source: "How to write types" in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, structs

from steersman.meta.frozen import FrozenStruct

StructT = TypeVar("StructT", bound=FrozenStruct)

ListType = Literal["atomic", "set", "map"]
MapType = Literal["granular", "atomic"]
FieldValueErrorReason = Literal[
    "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"
]


class Rule(Struct, frozen=True, kw_only=True):
    """A CEL validation rule (``x-kubernetes-validations``).

    Attributes:
        rule: CEL expression. ``self`` is the value, and ``oldSelf`` is the value before an update.
        message: error message for the user, with the remedy.
        message_expression: CEL expression of a message that contains values. ``message`` is used if it fails.
        reason: ``FieldValueInvalid``, ``FieldValueForbidden``, ``FieldValueRequired`` or ``FieldValueDuplicate``.
        field_path: field in the error, relative to ``self``, such as ``.storageSize``.
        optional_old_self: also evaluate the rule on creation. ``oldSelf`` is then optional (``oldSelf.orValue(0)``).
        optional_fields: JSON names of fields that the rule tests for presence, so that each must be optional. Set by
            ``exactly_one_of`` and related functions.
        required_fields: JSON names of fields that the rule reads, so that each must be required or have a default.

    Source: "Extend the Kubernetes API with CustomResourceDefinitions", section "Validation rules".
    """

    rule: str
    message: str
    message_expression: str = ""
    reason: FieldValueErrorReason = "FieldValueInvalid"
    field_path: str = ""
    optional_old_self: bool = False
    optional_fields: tuple[str, ...] = ()
    required_fields: tuple[str, ...] = ()


class Field(Struct, frozen=True, kw_only=True):
    """Schema of one value, as in ``replicas: Annotated[int, Field(ge=0, le=100)] = 1``.

    It can annotate any type. In ``tuple[Annotated[str, Field(min_length=1)], ...]`` it applies to the items. The API
    server validates the schema. msgspec does not, so that objects stored under an older schema can still be decoded.

    Attributes:
        ge: minimum.
        gt: exclusive minimum.
        le: maximum.
        lt: exclusive maximum.
        multiple_of: divisor of the value.
        min_length: minimum length of a string in characters.
        max_length: maximum length of a string in characters.
        pattern: regular expression (RE2) that matches part of the string. Use ``^…$`` to match the whole string.
        format: format of a string, such as ``hostname``, ``ipv4``, ``email`` or ``uuid``, or of a number (``int32``).
        min_items: minimum length of a list.
        max_items: maximum length of a list.
        min_properties: minimum number of keys of a map.
        max_properties: maximum number of keys of a map.
        default: default set by the API server. Needed if it differs from the Python default, or if that is None or
            empty. With None it sets none: GitOps tools report defaults inside list items as changes.
        title: short name for user interfaces.
        description: replaces the docstring below the attribute.
        example: example value for documentation.
        external_docs: URL of further documentation.
        list_type: ``atomic`` (the whole list has one owner), ``set`` (items are unique) or ``map``. The API server
            defaults to ``atomic``.
        list_map_keys: JSON names of the fields that identify an item. Implies the list type ``map``.
        map_type: ``granular`` (each key has its own owner) or ``atomic``, for a map or a struct. The API server
            defaults to ``granular``.
        nullable: the API server keeps an explicit null. The type must be ``X | None``.
        immutable: True if the value cannot change after creation. ``"once-set"`` permits setting it once later. In an
            optional struct, the rule applies as long as the struct exists.
        preserve_unknown: the API server keeps fields that are not in the schema.
        embedded_resource: the value is a complete Kubernetes object with apiVersion, kind and metadata.
        rules: CEL rules on the value.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    default: Any = UNSET
    title: str | None = None
    description: str | None = None
    example: Any = UNSET
    external_docs: str | None = None
    list_type: ListType | None = None
    list_map_keys: tuple[str, ...] = ()
    map_type: MapType | None = None
    nullable: bool = False
    immutable: bool | Literal["once-set"] = False
    preserve_unknown: bool = False
    embedded_resource: bool = False
    rules: tuple[Rule, ...] = ()


class StructOptions(Struct, frozen=True, kw_only=True):
    """Arguments of ``@schema``."""

    rules: tuple[Rule, ...] = ()
    map_type: MapType | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    preserve_unknown: bool = False
    title: str | None = None
    external_docs: str | None = None


_OPTIONS = "__schema_options__"


def schema(
    *,
    rules: Sequence[Rule] = (),
    map_type: MapType | None = None,
    min_properties: int | None = None,
    max_properties: int | None = None,
    preserve_unknown: bool = False,
    title: str | None = None,
    external_docs: str | None = None,
) -> Callable[[type[StructT]], type[StructT]]:
    """Set schema options of a struct class, wherever it is used.

    ``Field`` sets those of a single value.

    Args:
        rules: CEL rules on the struct. Rules of base classes also apply.
        map_type: ``atomic`` makes server-side apply treat the struct as one value. The API server defaults to
            ``granular``.
        min_properties: minimum number of set fields.
        max_properties: maximum number of set fields.
        preserve_unknown: the API server keeps fields that are not in the schema.
        title: short name for user interfaces.
        external_docs: URL of further documentation.
    """
    options = StructOptions(
        rules=tuple(rules),
        map_type=map_type,
        min_properties=min_properties,
        max_properties=max_properties,
        preserve_unknown=preserve_unknown,
        title=title,
        external_docs=external_docs,
    )

    def declare(cls: type[StructT]) -> type[StructT]:
        setattr(cls, _OPTIONS, options)
        return cls

    return declare


def schema_options(kind: type[FrozenStruct]) -> StructOptions:
    """Return the options that ``@schema`` stored on ``kind``. Rules of base classes come first."""
    declared: list[StructOptions] = [vars(c)[_OPTIONS] for c in reversed(kind.__mro__) if _OPTIONS in vars(c)]
    if not declared:
        return StructOptions()
    own: StructOptions = vars(kind).get(_OPTIONS, StructOptions())
    return structs.replace(own, rules=tuple(r for o in declared for r in o.rules))


# controller-gen generates the same expressions and messages.
def exactly_one_of(*fields: str) -> Rule:
    """Return a rule that requires exactly one of the fields.

    Example: ``@schema(rules=[exactly_one_of("http", "tcp")])``.

    Args:
        fields: JSON names of the fields.
    """
    return _count_rule(fields, "== 1", "exactly one", "must")


def at_most_one_of(*fields: str) -> Rule:
    """Return a rule that permits at most one of the fields.

    Args:
        fields: JSON names of the fields.
    """
    return _count_rule(fields, "<= 1", "at most one", "may")


def at_least_one_of(*fields: str) -> Rule:
    """Return a rule that requires at least one of the fields.

    Args:
        fields: JSON names of the fields.
    """
    return _count_rule(fields, ">= 1", "at least one", "must")


def discriminated(discriminator: str, **fields: str) -> Rule:
    """Return a rule that requires the field selected by a discriminator.

    Example: ``discriminated("type", HTTP="http", TCP="tcp")``. A value of the discriminator without a field, such as
    ``Recreate`` in the strategy of a Deployment, is omitted.

    Args:
        discriminator: JSON name of the discriminator.
        fields: JSON name of the field for each value of the discriminator.
    """
    by_field: dict[str, list[str]] = {}
    for value, field in fields.items():
        by_field.setdefault(field, []).append(value)
    name = cel_name(discriminator)
    pairs = (f"({_value_in(name, values)}) == has(self.{cel_name(f)})" for f, values in by_field.items())
    return Rule(
        rule=" && ".join(pairs),
        message=f"of {' and '.join(by_field)}, set the one that {discriminator} names, and no other",
        optional_fields=tuple(by_field),
        required_fields=(discriminator,),
    )


def _value_in(name: str, values: list[str]) -> str:
    if len(values) == 1:
        return f"self.{name} == '{values[0]}'"
    return f"self.{name} in [{', '.join(repr(v) for v in values)}]"


def _count_rule(fields: tuple[str, ...], comparison: str, amount: str, verb: str) -> Rule:
    present = ",".join(f"has(self.{cel_name(field)})" for field in fields)
    return Rule(
        rule=f"[{present}].filter(x,x==true).size() {comparison}",
        message=f"{amount} of the fields in [{' '.join(fields)}] {verb} be set",
        optional_fields=fields,
    )


_CEL_LITERALS = ("true", "false", "null", "in")
_CEL_KEYWORDS = (
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
)
_CEL_RESERVED = frozenset((*_CEL_LITERALS, *_CEL_KEYWORDS, "namespace", "return", "var", "void", "while"))
_CEL_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


def cel_name(field: str) -> str:
    """Escape the JSON name of a field for CEL.

    ``namespace`` becomes ``__namespace__``, and ``a-b`` becomes ``a__dash__b``.
    """
    if field in _CEL_RESERVED:
        return f"__{field}__"
    for text, escaped in _CEL_ESCAPES:
        field = field.replace(text, escaped)
    return field
