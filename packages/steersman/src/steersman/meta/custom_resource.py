"""The ``@resource`` decorator: names, printer columns, versions and subresources of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Struct

from steersman.meta.condition import Condition
from steersman.meta.frozen import FrozenStruct, FrozenStructMeta
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
    """Arguments of ``@resource``, except for the names in ``ApiResource``."""

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
    """Base class of the ``spec`` of a custom resource: the desired state."""


class Status(FrozenStruct):
    """Base class of the ``status`` of a custom resource: the observed state."""

    observed_generation: int | None = None
    """The metadata.generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Field(list_map_keys=("type",))] = ()
    """The latest observations of the object's state."""


def _status_type(namespace: Mapping[str, Any]) -> type[Status] | None:
    """Return the status type of a kind, if it is known."""
    for base in namespace.get("__orig_bases__", ()):
        if isinstance(get_origin(base), ResourceMeta):
            arguments = get_args(base)
            status: Any = arguments[1] if len(arguments) > 1 else None
            return cast("type[Status]", status) if isinstance(status, FrozenStructMeta) else None
    return None


def _empty_status(name: str, status: type[Status]) -> Status:
    try:
        return status()
    except TypeError as error:
        raise TypeError(
            f"{name}: {status.__name__} cannot be empty: {error}. Give each field of the status a default."
        ) from error


def _with_field(namespace: dict[str, Any], name: str, kind: type[Any], default: object) -> dict[str, Any]:
    """Return the namespace of a class with one more field."""
    annotate = namespace.get("__annotate_func__") or namespace.get("__annotate__")
    declared: dict[str, Any] = namespace.get("__annotations__") or (annotate(1) if annotate is not None else {})
    rest = {k: v for k, v in namespace.items() if k not in ("__annotate_func__", "__annotate__")}
    return rest if name in declared else {**rest, "__annotations__": {**declared, name: kind}, name: default}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ResourceMeta(FrozenStructMeta):
    """Metaclass that makes an empty status the default of ``status``."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> ResourceMeta:
        status = _status_type(namespace)
        if status is not None:
            namespace = _with_field(namespace, "status", status, _empty_status(name, status))
        return cast("ResourceMeta", super().__new__(mcls, name, bases, namespace, **config))


class Resource(Object, Generic[SpecT, StatusT], metaclass=ResourceMeta):
    """Base class of custom resources, decorated with ``@resource(...)``.

    ``status`` is never None. Before its first write, all its fields have their defaults.

    Example: ``class WebApp(Resource[WebAppSpec, WebAppStatus])``.

    Raises:
        TypeError: a field of the status has no default.
    """

    resource_options: ClassVar[ResourceOptions]

    spec: SpecT
    # Each subclass replaces the default by an empty status of its own type.
    status: StatusT = msgspec.field(default=cast("Any", None))


def is_decorated(kind: type[Any]) -> bool:
    """Return True if ``@resource`` decorates ``kind`` itself, not only a base class."""
    return "resource_options" in vars(kind)


def resource_options(kind: type[Object]) -> ResourceOptions:
    """Return the options that ``@resource`` stored on ``kind``."""
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
    """Declare a class as a custom resource.

    Args:
        group: API group, such as ``databases.example.com``.
        version: API version, such as ``v1alpha1``.
        kind: name of the kind. Defaults to the name of the class.
        plural: name in URLs. Defaults to the lower-case kind followed by ``s``.
        singular: alias for ``kubectl``. Defaults to the lower-case kind.
        list_kind: kind of lists. Defaults to the kind followed by ``List``.
        namespaced: False for a cluster-scoped kind.
        short_names: aliases for ``kubectl``.
        categories: groups, such as ``all``, in which ``kubectl get`` lists the kind.
        columns: columns of ``kubectl get``. The generator appends the age.
        scale: scale subresource, for autoscalers.
        status_subresource: False for an existing kind without the status subresource.
        selectable_fields: paths for ``--field-selector``, such as ``.spec.engine`` (Kubernetes 1.31).
        served: False for a version that the definition contains but the API server no longer serves.
        storage: False for a version that is converted to another version before it is stored.
        deprecated: True, or the warning for users of this version.
        labels: labels of the CustomResourceDefinition.
        annotations: annotations of the CustomResourceDefinition, such as ``api-approved.kubernetes.io``.
        rules: CEL rules on the whole object. They can read ``self.metadata.name``.
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
