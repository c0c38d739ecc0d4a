"""What a Python type says about its schema: bounds, list types, rules. Read by ``steersman.crd``, ignored by msgspec.

How to use them: "How to write types" in the documentation.
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
        rule: the expression, in which ``self`` is the value and ``oldSelf`` the one before an update.
        message: what the user reads when it does not hold; says what to do.
        message_expression: a CEL expression of that text, which may name values; ``message`` stands where it fails.
        reason: ``FieldValueInvalid``, ``FieldValueForbidden``, ``FieldValueRequired`` or ``FieldValueDuplicate``.
        field_path: the field that the error names, relative to ``self``, such as ``.storageSize``.
        optional_old_self: evaluate it on creation, too: ``oldSelf`` is then an optional (``oldSelf.orValue(0)``).
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

    It stands wherever a type does: ``tuple[Annotated[str, Field(min_length=1)], ...]`` is about the items. The API
    server checks all of it; msgspec does not, so that an object stored under an older schema can still be read.

    Attributes:
        ge: least value.
        gt: the value is greater.
        le: greatest value.
        lt: the value is less.
        multiple_of: the value is a multiple.
        min_length: of texts, in characters.
        max_length: of texts, in characters.
        pattern: a regular expression (RE2) that the text contains a match of; write ``^…$`` for the whole text.
        format: such as ``hostname``, ``uri``, ``ipv4``, ``cidr``, ``email``, ``uuid``; ``int32`` for numbers.
        min_items: of lists.
        max_items: of lists.
        min_properties: of maps.
        max_properties: of maps.
        default: what the API server fills in where that is not the Python default, or where that is None or empty.
        title: a short name for user interfaces.
        description: replaces the docstring below the attribute.
        example: a value for documentation.
        external_docs: URL of further documentation.
        list_type: ``atomic`` (has one owner, the API's own default), ``set`` (items are unique) or ``map``.
        list_map_keys: wire names that tell the items of a list apart; the list's type is then ``map``.
        map_type: ``granular`` (each key has its owner, the API's own default) or ``atomic``, of a map or a struct.
        nullable: an explicit null is kept; the type then is ``X | None``.
        immutable: True: as it was on creation, for good; ``"once-set"``: may be set later, once. Within a struct that
            is optional it holds as long as that is there.
        preserve_unknown: fields that the schema does not know are kept.
        embedded_resource: a whole Kubernetes object, with apiVersion, kind and metadata.
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
    """What ``@schema`` said: see there."""

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
    """Says of a struct class what ``Field`` says of a single value; it holds wherever the struct is used.

    Args:
        rules: CEL rules on the struct; those of base classes hold as well.
        map_type: ``atomic`` makes the whole struct one value for server-side apply.
        min_properties: how many fields must be set.
        max_properties: how many fields may be set.
        preserve_unknown: fields that the schema does not know are kept.
        title: a short name for user interfaces.
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
    """What ``@schema`` said of ``kind``; the rules of its bases come first."""
    declared: list[StructOptions] = [vars(c)[_OPTIONS] for c in reversed(kind.__mro__) if _OPTIONS in vars(c)]
    if not declared:
        return StructOptions()
    own: StructOptions = vars(kind).get(_OPTIONS, StructOptions())
    return structs.replace(own, rules=tuple(r for o in declared for r in o.rules))


# Expressions and messages are those of controller-gen.
def exactly_one_of(*fields: str) -> Rule:
    """Of the fields with these wire names, one must be set: ``@schema(rules=[exactly_one_of("http", "tcp")])``."""
    return _count_rule(fields, "== 1", "exactly one", "must")


def at_most_one_of(*fields: str) -> Rule:
    """Of the fields with these wire names, one may be set, or none."""
    return _count_rule(fields, "<= 1", "at most one", "may")


def at_least_one_of(*fields: str) -> Rule:
    """Of the fields with these wire names, one must be set, or several."""
    return _count_rule(fields, ">= 1", "at least one", "must")


def discriminated(discriminator: str, **fields: str) -> Rule:
    """The field ``discriminator`` says which of the others is set: ``discriminated("type", HTTP="http", TCP="tcp")``.

    Each value of the discriminator is named with the wire name of its field; a value that is not named has none, as
    ``Recreate`` of a Deployment's strategy.
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
    """A field's wire name as CEL expressions write it: ``namespace`` is ``__namespace__``, ``a-b`` ``a__dash__b``."""
    if field in _CEL_RESERVED:
        return f"__{field}__"
    for text, escaped in _CEL_ESCAPES:
        field = field.replace(text, escaped)
    return field
