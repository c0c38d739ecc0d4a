"""``@resource``: what a kind is called, how ``kubectl`` shows it, which versions and subresources it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from msgspec import Struct

from steersman.meta.condition import Condition
from steersman.meta.frozen import FrozenStruct
from steersman.meta.markers import Field, Rule
from steersman.meta.object import Object
from steersman.meta.resource_names import ApiResource

ObjectT = TypeVar("ObjectT", bound=Object)
SpecT = TypeVar("SpecT", bound="Spec")
StatusT = TypeVar("StatusT", bound="Status")


class PrinterColumn(Struct, frozen=True):
    """A column of ``kubectl get``. ``priority`` above 0 shows it with ``-o wide`` only.

    ``format`` is an OpenAPI format such as ``int32`` or ``date-time``, for clients other than kubectl.
    """

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0
    format: str = ""


class Scale(Struct, frozen=True):
    """Paths of the scale subresource, such as ``Scale(".spec.replicas", ".status.replicas")``."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """What ``@resource`` said beside the kind's names: see there."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: Scale | None = None
    rules: tuple[Rule, ...] = ()
    singular: str = ""
    list_kind: str = ""
    served: bool = True
    storage: bool = True
    deprecated: bool | str = False
    selectable_fields: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    status_subresource: bool = True


class Spec(FrozenStruct):
    """Base of the ``spec`` of a custom resource: what the user wants."""


class Status(FrozenStruct):
    """Base of the ``status`` of a custom resource: what is."""

    observed_generation: int | None = None
    """The metadata.generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Field(list_map_keys=("type",))] = ()
    """The latest observations of the object's state."""


class Resource(Object, Generic[SpecT, StatusT]):
    """Base of custom resources: ``class WebApp(Resource[WebAppSpec, WebAppStatus])`` under ``@resource(...)``."""

    resource_options: ClassVar[ResourceOptions]

    spec: SpecT
    status: StatusT | None = None


def is_decorated(kind: type[Any]) -> bool:
    """Whether ``@resource`` stands above ``kind`` itself."""
    return "resource_options" in vars(kind)


def resource_options(kind: type[Object]) -> ResourceOptions:
    """What ``@resource`` said of ``kind``."""
    declared: Any = kind
    return declared.resource_options


def resource(
    *,
    group: str,
    version: str,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    list_kind: str | None = None,
    namespaced: bool = True,
    short_names: tuple[str, ...] | list[str] = (),
    categories: tuple[str, ...] | list[str] = (),
    columns: tuple[PrinterColumn, ...] | list[PrinterColumn] = (),
    scale: Scale | None = None,
    status_subresource: bool = True,
    selectable_fields: tuple[str, ...] | list[str] = (),
    served: bool = True,
    storage: bool = True,
    deprecated: bool | str = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    rules: tuple[Rule, ...] | list[Rule] = (),
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Declares a custom resource; the class's name is its kind.

    Args:
        group: API group, such as ``databases.example.com``.
        version: API version, such as ``v1alpha1``.
        kind: the kind, where the class has another name.
        plural: name in URLs; the lower-case kind with an ``s`` unless told.
        singular: alias for ``kubectl``; the lower-case kind unless told.
        list_kind: kind of lists; the kind with ``List`` unless told.
        namespaced: False for a cluster-scoped kind.
        short_names: aliases for ``kubectl``.
        categories: groups such as ``all`` in which ``kubectl get`` lists it.
        columns: of ``kubectl get``; the age is appended by the generator.
        scale: the scale subresource, for autoscalers.
        status_subresource: False for a kind of somebody else's whose status, if any, is written with all the rest.
        selectable_fields: paths for ``--field-selector``, such as ``.spec.engine`` (Kubernetes 1.31).
        served: False for a version that is kept in the definition and not served any more.
        storage: False for a version that is converted to another one before it is stored.
        deprecated: True, or the warning that users of this version read.
        labels: of the CustomResourceDefinition itself.
        annotations: of the CustomResourceDefinition itself, such as ``api-approved.kubernetes.io``.
        rules: CEL rules on the whole object, where ``self.metadata.name`` can be seen.
    """

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        name = kind or cls.__name__
        declared: Any = cls
        declared.api_resource = ApiResource(group, version, name, plural or f"{name.lower()}s", namespaced)
        declared.resource_options = ResourceOptions(
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=tuple(columns),
            scale=scale,
            rules=tuple(rules),
            singular=name.lower() if singular is None else singular,
            list_kind=list_kind or f"{name}List",
            served=served,
            storage=storage,
            deprecated=deprecated,
            selectable_fields=tuple(selectable_fields),
            labels=tuple((labels or {}).items()),
            annotations=tuple((annotations or {}).items()),
            status_subresource=status_subresource,
        )
        return cls

    return declare
