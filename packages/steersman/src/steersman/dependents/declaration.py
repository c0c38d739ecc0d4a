"""Declaration of dependents and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from steersman.client.encode import key_of, kind_of
from steersman.dependents.readiness import Readiness, default_readiness, outdated_readiness
from steersman.meta import ApplyConfiguration, Object, ObjectKey, Unstructured

Config = ApplyConfiguration[Any] | Unstructured
"""An object to apply: an apply type, or ``Unstructured`` created by ``of``."""


class Dependent(Struct, frozen=True):
    """An object to apply, and when it is ready.

    Attributes:
        config: the object to apply.
        ready: returns True if the applied object is ready, or False or a message that says what is missing. It is not
            called while the status is outdated. Defaults to the readiness of the kind.
    """

    config: Config
    ready: Callable[[Any], bool | str] | None = None

    @property
    def kind(self) -> type[Object]:
        """The kind that is read."""
        return kind_of(self.config)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return key_of(self.config)

    def readiness(self, obj: Object) -> Readiness:
        """Return the readiness of the applied object ``obj``."""
        if self.ready is None:
            return default_readiness(obj)
        # Right after a change, the status is that of the previous generation.
        if (outdated := outdated_readiness(obj)) is not None:
            return outdated
        result = self.ready(obj)
        if isinstance(result, str) or not result:
            return Readiness(ready=False, message=result or "it is not ready")
        return Readiness(ready=True)


Step = Dependent | Config | tuple[Dependent | Config, ...]
"""An object, or a tuple of objects that are applied together."""


def normalize_steps(steps: Iterable[Step]) -> tuple[tuple[Dependent, ...], ...]:
    """Return each step as a tuple of dependents.

    Raises:
        TypeError: a step is not an object, a Dependent, or a tuple of them.
        ValueError: an object is declared twice.
    """
    tuples = (step if isinstance(step, tuple) else (step,) for step in steps)
    normalized = tuple(tuple(_as_dependent(each) for each in step) for step in tuples)
    seen: set[tuple[tuple[str, str], ObjectKey]] = set()
    for dependent in (each for step in normalized for each in step):
        identity = identity_of(dependent.kind, dependent.key)
        if identity in seen:
            raise ValueError(f"{dependent.kind.api_resource.kind} {dependent.key} is declared twice")
        seen.add(identity)
    return normalized


def identity_of(kind: type[Object], key: ObjectKey) -> tuple[tuple[str, str], ObjectKey]:
    """Return what identifies an object, whatever type it is read as."""
    return kind.api_resource.group_resource, key


def with_label(config: Config, name: str, value: str) -> Config:
    """Return ``config`` with a further label."""
    if isinstance(config, Unstructured):
        content = config.to_dict()
        content["metadata"]["labels"] = {**(content["metadata"].get("labels") or {}), name: value}
        return type(config).of(content)
    labels = config.metadata.labels
    declared = {**labels, name: value} if labels else {name: value}
    return replace(config, metadata=replace(config.metadata, labels=declared))


def _as_dependent(each: Dependent | Config) -> Dependent:
    if isinstance(each, Dependent):
        return each
    _require_object(each)
    return Dependent(each)


def _require_object(each: object) -> None:
    if not isinstance(each, ApplyConfiguration | Object):
        raise TypeError(
            f"a step must be an object, a Dependent, or a tuple of them, not a {type(each).__name__}. "
            "Write (a, b) for objects that are applied together."
        )
