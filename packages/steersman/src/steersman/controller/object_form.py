"""Runs a ``Reconciler`` for requests, and maintains its finalizer."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

from steersman.controller.finalizers import add_finalizer, remove_finalizer
from steersman.controller.reconciler import (
    ReconcileOutcome,
    Reconciler,
    ReconcilerContext,
    RequestReconciler,
    Result,
    overrides,
)
from steersman.controller.request import Request
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, Object

T = TypeVar("T", bound=Object)

# Source: ``IsQualifiedName`` in k8s.io/apimachinery/pkg/util/validation.
_FINALIZER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def finalizer_name(reconciler: Reconciler[Any], resource: ApiResource, controller: str) -> str:
    """Return the finalizer of a reconciler.

    Raises:
        ConfigurationError: the API server would not accept it.
    """
    prefix = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    name = reconciler.finalizer or f"{prefix}/{controller}"
    if not _FINALIZER.fullmatch(name) and (reconciler.finalizer or overrides(reconciler, Reconciler, "cleanup")):
        raise ConfigurationError(
            f"controller {controller!r}: {name!r} is not a valid finalizer: "
            f"set {type(reconciler).__name__}.finalizer to a name such as {prefix}/cleanup"
        )
    return name


class ObjectForm(RequestReconciler[T], Generic[T]):
    """The request form of a ``Reconciler``.

    Args:
        context: the context of the reconciler.
        kind: the reconciled kind.
        reconciler: the reconciler of objects.
        controller: the name of the controller.

    Raises:
        ConfigurationError: the API server would not accept the finalizer.
    """

    def __init__(self, context: ReconcilerContext, kind: type[T], reconciler: Reconciler[T], controller: str) -> None:
        super().__init__(context)
        self.reconciler = reconciler
        self._kind = kind
        name = f"{context.client.live.field_manager}.{controller}"
        self._finalizer = finalizer_name(reconciler, kind.api_resource, name)
        self._has_cleanup = overrides(reconciler, Reconciler, "cleanup")
        self._has_status_update = overrides(reconciler, Reconciler, "update_status")
        # The objects of running reconciles. A newer object would have a generation that was not reconciled yet.
        self._reconciled: dict[Request, T] = {}

    @property
    def has_status_update(self) -> bool:
        """True if the reconciler has ``update_status``."""
        return self._has_status_update

    async def reconcile(self, request: Request) -> Result | None:
        """Reconcile or clean up the object, if it exists."""
        self._reconciled.pop(request, None)
        obj = await self.client.get_or_none(self._kind, request)
        if obj is None:
            return None
        if obj.metadata.deletion_timestamp is not None:
            return await self._clean_up(request, obj)
        if self._has_status_update:
            self._reconciled[request] = obj
        if (self._finalizer in obj.metadata.finalizers) is not self._has_cleanup:
            obj = await self._correct_finalizer(request, obj)
            if obj is None or obj.metadata.deletion_timestamp is not None:
                # The watch event of the deletion or recreation reconciles the object again.
                self._reconciled.pop(request, None)
                return None
            if self._has_status_update:
                self._reconciled[request] = obj
        return await self.reconciler.reconcile(obj)

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Call ``update_status`` with the reconciled object, if there was one."""
        if (obj := self._reconciled.pop(request, None)) is not None:
            await self.reconciler.update_status(obj, outcome)

    async def wait_closed(self) -> None:
        """Wait for work that outlives a cancelled reconcile."""
        await self.reconciler.wait_closed()

    async def _correct_finalizer(self, request: Request, obj: T) -> T | None:
        """Add our finalizer, or remove that of an earlier version."""
        current = await self._untransformed(obj)
        if current is None or current.metadata.deletion_timestamp is not None:
            return None
        if self._has_cleanup:
            await add_finalizer(self.client, current, self._finalizer)
        else:
            await remove_finalizer(self.client, current, self._finalizer)
        newest = await self.client.get_or_none(self._kind, request)
        return newest if newest is not None and newest.metadata.uid == obj.metadata.uid else None

    async def _clean_up(self, request: Request, obj: T) -> Result | None:
        current = await self._untransformed(obj)
        if current is None or self._finalizer not in current.metadata.finalizers:
            return None
        if self._has_cleanup:
            if self._has_status_update:
                self._reconciled[request] = obj
            result = await self.reconciler.cleanup(obj)
            if result is not None and result.requeue_after is not None:
                return result
            self._reconciled.pop(request, None)
            # Cleanup may have changed the object, for example its status.
            current = await self._untransformed(obj)
        if current is not None:
            await remove_finalizer(self.client, current, self._finalizer)
        return None

    async def _untransformed(self, obj: T) -> T | None:
        """Return the object with all its finalizers. A transform may have removed some of them.

        Return None if the object was deleted, or created again under the same name.
        """
        current = await self.client.get_uncached_if_transformed(self._kind, obj.key)
        return current if current is not None and current.metadata.uid == obj.metadata.uid else None
