"""What a Python type says about its CRD: bounds, rules, columns. Read by ``steersman.crd``, ignored by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from steersman.meta.object import Object

ObjectT = TypeVar("ObjectT", bound="Object")


class Rule(Struct, frozen=True, kw_only=True):
    """A CEL validation rule (``x-kubernetes-validations``).

    Attributes:
        rule: the expression, in which ``self`` is the value and ``oldSelf`` the one before an update.
        message: what the user reads when it does not hold; says what to do.
        reason: ``FieldValueInvalid``, ``FieldValueForbidden``, ``FieldValueRequired`` or ``FieldValueDuplicate``.
        field_path: the field that the error names, relative to ``self``, such as ``.storageSize``.

    Source: "Extend the Kubernetes API with CustomResourceDefinitions", section "Validation rules".
    """

    rule: str
    message: str
    reason: str = "FieldValueInvalid"
    field_path: str = ""


class Field(Struct, frozen=True, kw_only=True):
    """Schema of one field, as in ``replicas: Annotated[int, Field(ge=0, le=100)] = 1``.

    Bounds are inclusive. ``list_map_keys`` (wire names) makes a list an associative one for server-side apply.
    ``preserve_unknown`` keeps fields that the schema does not know. The API server checks all of these; msgspec
    does not, so that an object stored under an older schema can still be read.
    """

    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    pattern: str | None = None
    format: str | None = None
    description: str | None = None
    list_map_keys: tuple[str, ...] = ()
    preserve_unknown: bool = False
    rules: tuple[Rule, ...] = ()


class PrinterColumn(Struct, frozen=True):
    """A column of ``kubectl get``. ``priority`` above 0 shows it with ``-o wide`` only."""

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0


class Scale(Struct, frozen=True):
    """Paths of the scale subresource, such as ``Scale(".spec.replicas", ".status.replicas")``."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """What ``@resource`` said beside the kind's names: see there."""

    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: tuple[PrinterColumn, ...]
    scale: Scale | None
    rules: tuple[Rule, ...]


def resource(
    *,
    group: str,
    version: str,
    plural: str | None = None,
    namespaced: bool = True,
    short_names: tuple[str, ...] | list[str] = (),
    categories: tuple[str, ...] | list[str] = (),
    columns: tuple[PrinterColumn, ...] | list[PrinterColumn] = (),
    scale: Scale | None = None,
    rules: tuple[Rule, ...] | list[Rule] = (),
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Declares a custom resource; the class's name is its kind.

    Args:
        group: API group, such as ``databases.example.com``.
        version: API version, such as ``v1alpha1``.
        plural: name in URLs; the lower-case kind with an ``s`` unless told.
        namespaced: False for a cluster-scoped kind.
        short_names: aliases for ``kubectl``.
        categories: groups such as ``all`` in which ``kubectl get`` lists it.
        columns: of ``kubectl get``; the age is appended by the generator.
        scale: the scale subresource, for autoscalers.
        rules: CEL rules on the whole object, where ``self.metadata.name`` can be seen.
    """
    from steersman.meta.object import ApiResource

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        kind: Any = cls
        kind.api_resource = ApiResource(
            group, version, cls.__name__, plural or f"{cls.__name__.lower()}s", namespaced
        )
        kind.resource_options = ResourceOptions(
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=tuple(columns),
            scale=scale,
            rules=tuple(rules),
        )
        return cls

    return declare
