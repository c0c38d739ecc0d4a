"""The result of applying dependents."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from steersman.meta import Condition, Object, ObjectKey

DependentsReason = Literal["Ready", "Progressing", "Failed", "PruneStopped"]

# Objects that a message names. The condition of an owner with hundreds of dependents must stay readable.
_MAX_NAMED = 5


class BlockingDependent(Struct, frozen=True):
    """A dependent that the next step waits for.

    Attributes:
        kind: the kind, such as ``Deployment``.
        key: namespace and name.
        message: what is missing.
        failed: True if waiting does not help, such as for a failed Job.
    """

    kind: str
    key: ObjectKey
    message: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.message}"


class PrunedObject(Struct, frozen=True):
    """An object that is no longer declared.

    Attributes:
        kind: the kind, such as ``ConfigMap``.
        key: namespace and name.
    """

    kind: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class DependentsState(Struct, frozen=True):
    """The state of an owner's dependents.

    Attributes:
        objects: the applied objects, as the server returned them. Later steps are missing while a step blocks.
        blocking: the dependents that are not ready.
        pruned: the objects that were deleted.
        unpruned: the objects that were not deleted, because they are too many at once.
        total: number of dependents, declared or to prune.
    """

    objects: tuple[Object, ...] = ()
    blocking: tuple[BlockingDependent, ...] = ()
    pruned: tuple[PrunedObject, ...] = ()
    unpruned: tuple[PrunedObject, ...] = ()
    total: int = 0

    @property
    def ready(self) -> bool:
        """True if all dependents are ready and nothing remains to prune."""
        return not (self.blocking or self.unpruned)

    @property
    def reason(self) -> DependentsReason:
        """The reason of the condition."""
        if any(dependent.failed for dependent in self.blocking):
            return "Failed"
        if self.blocking:
            return "Progressing"
        return "PruneStopped" if self.unpruned else "Ready"

    @property
    def message(self) -> str:
        """The blocking dependents, or the objects that were not pruned."""
        if self.blocking:
            return _join(self.blocking)
        if self.unpruned:
            return (
                f"{len(self.unpruned)} of {self.total} dependents are not declared, too many to delete at once: "
                f"{_join(self.unpruned)}. Delete them, or restore their declaration."
            )
        return f"All {self.total} dependents are ready."

    def condition(self, type: str) -> Condition:
        """Return a condition of ``type``, such as ``Ready``.

        ``Reconciler.status`` sets its generation and its transition time.
        """
        return Condition(
            type=type,
            status="True" if self.ready else "False",
            reason=self.reason,
            message=self.message,
        )


def _join(items: tuple[BlockingDependent, ...] | tuple[PrunedObject, ...]) -> str:
    named = "; ".join(str(item) for item in items[:_MAX_NAMED])
    return f"{named}; and {len(items) - _MAX_NAMED} more" if len(items) > _MAX_NAMED else named
