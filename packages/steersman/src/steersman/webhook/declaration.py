"""Declaration of an admission webhook and its handlers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from steersman.controller import Permission
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, Object
from steersman.webhook.request import AdmissionRequest, Operation
from steersman.webhook.responses import AdmissionWarning, FieldError

T = TypeVar("T", bound=Object)

ValidationOutput = (
    Iterable[FieldError | AdmissionWarning]
    | AsyncIterable[FieldError | AdmissionWarning]
    | Awaitable[Iterable[FieldError | AdmissionWarning] | None]
    | None
)
"""Errors and warnings of a validating handler. None or nothing means that the object is valid."""

Defaulter = Callable[[T], T | Awaitable[T]] | Callable[[T, AdmissionRequest], T | Awaitable[T]]
"""Returns an object with defaults."""

Validator = Callable[[T, T | None], ValidationOutput] | Callable[[T, T | None, AdmissionRequest], ValidationOutput]
"""Validates an object. The second argument is the stored object, or None for a create."""

DeletionValidator = Callable[[T], ValidationOutput] | Callable[[T, AdmissionRequest], ValidationOutput]
"""Validates the deletion of an object."""

FailurePolicy = Literal["Fail", "Ignore"]
SideEffects = Literal["None", "NoneOnDryRun"]

MUTATE_VERB, VALIDATE_VERB = "mutate", "validate"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """Settings of a webhook in its webhook configuration.

    Attributes:
        name: distinguishes several webhooks for one kind; lower case.
        failure_policy: result of a write if the webhook is unreachable or fails.
        timeout_seconds: timeout of a request, 1 to 30.
        namespace_selector: ``LabelSelector`` in wire form for the namespaces of objects.
        object_selector: ``LabelSelector`` in wire form for objects, in their old or new state.
        match_conditions: CEL expressions by name. The webhook is called if all are true.
        match_policy: ``Equivalent`` also matches other versions of the kind, converted to this one.
        side_effects: ``NoneOnDryRun`` if a handler writes elsewhere, except in a dry run.
        reinvocation_policy: ``IfNeeded`` calls defaulting handlers again if later webhooks change the object.
        operations: operations to match. DELETE is added by deletion handlers.
        resource: resource to match, if its subresource has another kind, such as ``Scale``.
        subresource: subresource to match, such as ``status``. Defaults to the object itself.

    Raises:
        ConfigurationError: ``timeout_seconds`` is out of range.
    """

    name: str = ""
    failure_policy: FailurePolicy = "Fail"
    timeout_seconds: int = 10
    namespace_selector: Mapping[str, Any] = field(default_factory=dict[str, Any])
    object_selector: Mapping[str, Any] = field(default_factory=dict[str, Any])
    match_conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    match_policy: Literal["Equivalent", "Exact"] = "Equivalent"
    side_effects: SideEffects = "None"
    reinvocation_policy: Literal["Never", "IfNeeded"] = "Never"
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    resource: ApiResource | None = None
    subresource: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_seconds <= 30:
            raise ConfigurationError(f"timeout_seconds must be between 1 and 30, not {self.timeout_seconds}")


class Webhook(Generic[T]):
    """An admission webhook for a kind, returned by ``Manager.webhook``.

    Example:
        ``manager.webhook(Shop).defaults(default_shop).validates(validate_shop)``

    Attributes:
        kind: type of the objects that handlers receive.
        options: settings of the webhook configuration.
        permissions: RBAC permissions that the handlers need.
    """

    def __init__(self, kind: type[T], options: WebhookOptions) -> None:
        self.kind = kind
        self.options = options
        self.permissions: list[Permission] = []
        self.defaulters: list[Callable[[T, AdmissionRequest], Any]] = []
        self.validators: list[Callable[[T, T | None, AdmissionRequest], Any]] = []
        self.deletion_validators: list[Callable[[T, AdmissionRequest], Any]] = []

    def defaults(self, handler: Defaulter[T]) -> Webhook[T]:
        """Add a handler that sets defaults. Several handlers run in order.

        Raises:
            ConfigurationError: the handler does not take an object and, optionally, an ``AdmissionRequest``.
        """
        self.defaulters.append(_adapt_handler(handler, 1))
        return self

    def validates(self, handler: Validator[T]) -> Webhook[T]:
        """Add a handler that validates creates and updates.

        The errors of all handlers are reported together. The old object is None if the stored object does not match
        its type. Raises like ``defaults``.
        """
        self.validators.append(_adapt_handler(handler, 2))
        return self

    def validates_deletion(self, handler: DeletionValidator[T]) -> Webhook[T]:
        """Add a handler that validates deletes. Raises like ``defaults``.

        The delete of a stored object that does not match its type is denied, because no handler can check it.
        """
        self.deletion_validators.append(_adapt_handler(handler, 1))
        return self

    def needs(
        self, kind: type[Object], *verbs: str, subresource: str = "", names: tuple[str, ...] = ()
    ) -> Webhook[T]:
        """Declare RBAC permissions of the handlers: ``.needs(Secret, "get")``. See ``Builder.needs``."""
        self.permissions.append(Permission(kind.api_resource, verbs, subresource, names))
        return self

    @property
    def resource(self) -> ApiResource:
        """The resource to match. Defaults to that of the kind."""
        return self.options.resource or self.kind.api_resource

    @property
    def slug(self) -> str:
        """Unique part of the paths, in kubebuilder's form: ``example-com-v1-shop``."""
        resource, options = self.resource, self.options
        parts = (resource.group.replace(".", "-"), resource.version, resource.kind.lower(), options.subresource)
        return "-".join(p for p in (*parts, options.name) if p)

    @property
    def paths(self) -> tuple[str, ...]:
        """URL paths of the webhook. They are also the label ``webhook`` in metrics."""
        handled_verbs = {MUTATE_VERB: bool(self.defaulters), VALIDATE_VERB: bool(self.validation_operations)}
        return tuple(f"/{verb}-{self.slug}" for verb, is_handled in handled_verbs.items() if is_handled)

    @property
    def validation_operations(self) -> tuple[Operation, ...]:
        """Operations that the validating webhook matches."""
        operations = self.options.operations if self.validators else ()
        return (*operations, "DELETE") if self.deletion_validators else operations


def _adapt_handler(handler: Callable[..., Any], object_count: int) -> Callable[..., Any]:
    """``handler`` as a function of objects and request, which it may omit.

    Args:
        object_count: number of objects that the handler takes.
    """
    try:
        signature = inspect.signature(handler)
    except ValueError:
        return handler
    for count in (object_count + 1, object_count):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return handler if count > object_count else lambda *arguments: handler(*arguments[:-1])
    name = getattr(handler, "__qualname__", repr(handler))
    expected = "an object" if object_count == 1 else "an object, the old object"
    raise ConfigurationError(f"{name}{signature} must take {expected} and, optionally, the AdmissionRequest")
