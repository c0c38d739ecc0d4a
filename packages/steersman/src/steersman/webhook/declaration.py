"""Says which functions are asked about a kind, and when."""

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
"""What a validating handler gives: nothing where nothing is wrong."""

Defaulter = Callable[[T], T | Awaitable[T]] | Callable[[T, AdmissionRequest], T | Awaitable[T]]
"""From an object to the object as it should be."""

Validator = Callable[[T, T | None], ValidationOutput] | Callable[[T, T | None, AdmissionRequest], ValidationOutput]
"""From an object, and what it was before (None when it is created), to what is wrong."""

DeletionValidator = Callable[[T], ValidationOutput] | Callable[[T, AdmissionRequest], ValidationOutput]
"""From an object that is about to be deleted to what is wrong with that."""

FailurePolicy = Literal["Fail", "Ignore"]
SideEffects = Literal["None", "NoneOnDryRun"]

MUTATE_VERB, VALIDATE_VERB = "mutate", "validate"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """What the API server is told of a webhook.

    Attributes:
        name: tells it from others for the same kind; lower case.
        failure_policy: what becomes of a write where the webhook gives no answer.
        timeout_seconds: 1 to 30, after which there is none.
        namespace_selector: a ``LabelSelector`` in wire form: only for objects in namespaces that it selects.
        object_selector: likewise, for the object, before or after.
        match_conditions: CEL expressions by their names; it is asked where all of them hold.
        match_policy: whether it is asked about other versions of the kind as well, converted to this one.
        side_effects: ``NoneOnDryRun`` where a handler writes elsewhere, and does not in a dry run.
        reinvocation_policy: whether defaulting handlers are asked again when others change the object after them.
        operations: about which it is asked; deletions are declared by their handlers.
        resource: what is written, where a subresource has another kind than its resource.
        subresource: such as ``status``; empty for the object itself.

    Raises:
        ConfigurationError: ``timeout_seconds`` is out of bounds.
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
            raise ConfigurationError(f"timeout_seconds must be 1 to 30, not {self.timeout_seconds}")


class Webhook(Generic[T]):
    """Made by ``Manager.webhook(kind)``: what is asked about writes of a kind.

    Example:
        ``manager.webhook(Shop).defaults(default_shop).validates(validate_shop)``

    Attributes:
        kind: of the objects that handlers get.
        options: what the API server is told.
        permissions: what the handlers do beside looking at the object.
    """

    def __init__(self, kind: type[T], options: WebhookOptions) -> None:
        self.kind = kind
        self.options = options
        self.permissions: list[Permission] = []
        self.defaulters: list[Callable[[T, AdmissionRequest], Any]] = []
        self.validators: list[Callable[[T, T | None, AdmissionRequest], Any]] = []
        self.deletion_validators: list[Callable[[T, AdmissionRequest], Any]] = []

    def defaults(self, handler: Defaulter[T]) -> Webhook[T]:
        """Has ``handler`` fill in what users left out; of several, each gets what the one before made.

        Raises:
            ConfigurationError: it takes more or fewer arguments than an object and, if it likes, a request.
        """
        self.defaulters.append(_adapt_handler(handler, 1))
        return self

    def validates(self, handler: Validator[T]) -> Webhook[T]:
        """Has ``handler`` say what is wrong with an object; what several say is told together.

        An object that was stored before, and does not fit its type any more, counts as none: ``former`` is None.
        Raises as ``defaults``.
        """
        self.validators.append(_adapt_handler(handler, 2))
        return self

    def validates_deletion(self, handler: DeletionValidator[T]) -> Webhook[T]:
        """Has ``handler`` say why an object may not be deleted. Raises as ``defaults``."""
        self.deletion_validators.append(_adapt_handler(handler, 1))
        return self

    def rbac(self, kind: type[Object], *verbs: str, subresource: str = "") -> Webhook[T]:
        """Declares for RBAC what the handlers do: ``.rbac(Secret, "get")``."""
        self.permissions.append(Permission(kind.api_resource, verbs, subresource))
        return self

    @property
    def resource(self) -> ApiResource:
        """What is written: the kind's resource, or another one with a subresource of this kind."""
        return self.options.resource or self.kind.api_resource

    @property
    def slug(self) -> str:
        """What tells it from others in paths: ``example-com-v1-shop``, as kubebuilder writes it."""
        resource, options = self.resource, self.options
        parts = (resource.group.replace(".", "-"), resource.version, resource.kind.lower(), options.subresource)
        return "-".join(p for p in (*parts, options.name) if p)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it is asked: by which it is known in metrics, too."""
        handled_verbs = {MUTATE_VERB: bool(self.defaulters), VALIDATE_VERB: bool(self.validation_operations)}
        return tuple(f"/{verb}-{self.slug}" for verb, is_handled in handled_verbs.items() if is_handled)

    @property
    def validation_operations(self) -> tuple[Operation, ...]:
        """Those that validating handlers are asked about."""
        operations = self.options.operations if self.validators else ()
        return (*operations, "DELETE") if self.deletion_validators else operations


def _adapt_handler(handler: Callable[..., Any], object_count: int) -> Callable[..., Any]:
    """``handler``, to be called with ``objects`` objects and the request, which it need not take."""
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
    expected = "an object" if object_count == 1 else "an object, the former one"
    raise ConfigurationError(f"{name}{signature} must take {expected} and, if it likes, the request")
