"""Says what a controller watches, and builds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from steersman.api.events_v1 import Event
from steersman.cache import Change, Informer
from steersman.controller.controller import Controller
from steersman.controller.permissions import READ, Permission
from steersman.controller.predicates import Predicate
from steersman.controller.reconciler import Context, Reconciler, Request
from steersman.meta import Object, ObjectKey

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)

Mapper = Callable[[U], Iterable[Request]]
ReconcilerFactory = Callable[[Context], Reconciler[T]]


@dataclass(frozen=True, slots=True)
class _Watch:
    kind: type[Any]
    map: Callable[[Any], Iterable[Request]]
    predicate: Predicate | None


class Builder(Generic[T]):
    """Made by ``Manager.controller(kind)``; ``complete`` ends the chain.

    Example:
        ``manager.controller(WebApp).owns(Deployment).owns(Service).complete(WebAppReconciler)``
    """

    def __init__(
        self,
        kind: type[T],
        *,
        context: Callable[[str], Context],
        informer: Callable[[type[Any]], Informer[Any]],
        register: Callable[[Controller, tuple[Permission, ...]], None],
    ) -> None:
        self._kind = kind
        self._context = context
        self._informer = informer
        self._register = register
        self._watches: list[_Watch] = [_Watch(kind, lambda obj: (obj.key,), None)]
        self._name = kind.api_resource.kind.lower()
        self._concurrency = 1
        self._max_retry_delay = 1000.0
        resource = kind.api_resource
        self._permissions: list[Permission] = [
            Permission(resource, (*READ, "patch")),
            Permission(resource, ("patch",), "status"),
            # Owner references that block the owner's deletion need it, where admission enforces that.
            Permission(resource, ("update",), "finalizers"),
            Permission(Event.api_resource, ("create", "patch")),
        ]

    def named(self, name: str) -> Builder[T]:
        """Names the controller in logs and metrics; the lower-case kind unless told."""
        self._name = name
        return self

    def max_concurrent_reconciles(self, number: int) -> Builder[T]:
        """Lets ``number`` objects be reconciled at once; the same object never is. 1 unless told."""
        if number < 1:
            raise ValueError(f"max_concurrent_reconciles must be 1 or more, not {number}")
        self._concurrency = number
        return self

    def max_retry_delay(self, seconds: float) -> Builder[T]:
        """Tries a failed reconcile again after ``seconds`` at most, however often it failed; 1000 unless told."""
        self._max_retry_delay = seconds
        return self

    def with_predicate(self, predicate: Predicate) -> Builder[T]:
        """Reconciles on those changes of the kind itself that ``predicate`` lets through."""
        self._watches[0] = _Watch(self._kind, self._watches[0].map, predicate)
        return self

    def owns(self, kind: type[Object], predicate: Predicate | None = None) -> Builder[T]:
        """Reconciles the owner when an object of ``kind`` that it controls changes."""
        self._watches.append(_Watch(kind, self._controller_of, predicate))
        return self

    def watches(self, kind: type[U], mapper: Mapper[U], predicate: Predicate | None = None) -> Builder[T]:
        """Reconciles the objects that ``mapper`` names when an object of ``kind`` changes."""
        self._watches.append(_Watch(kind, mapper, predicate))
        return self

    def permits(self, kind: type[Object], *verbs: str, subresource: str = "") -> Builder[T]:
        """Declares for RBAC what the reconciler does beyond watching: ``.permits(Deployment, "create", "patch")``."""
        self._permissions.append(Permission(kind.api_resource, verbs, subresource))
        return self

    def complete(self, factory: ReconcilerFactory[T]) -> Controller:
        """Builds the controller and hands it to the manager.

        Args:
            factory: the reconciler's class, or any callable that makes one from a ``Context``.
        """
        context = self._context(self._name)
        store = self._informer(self._kind).store
        controller = Controller(
            self._name,
            factory(context),
            runtime=context.runtime,
            exists=lambda request: store.get(request) is not None,
            max_concurrent_reconciles=self._concurrency,
            max_retry_delay=self._max_retry_delay,
        )
        for watch in self._watches:
            self._informer(watch.kind).subscribe(_enqueuer(watch, controller))
        watched = (Permission(watch.kind.api_resource, READ) for watch in self._watches)
        self._register(controller, (*self._permissions, *watched))
        return controller

    def _controller_of(self, obj: Object) -> Iterable[Request]:
        owner, resource = obj.controller_reference, self._kind.api_resource
        if owner is None or owner.kind != resource.kind:
            return ()
        # The version is not compared: an owner reference keeps the one it was written with.
        if owner.api_version.rpartition("/")[0] != resource.group:
            return ()
        return (ObjectKey(obj.metadata.namespace if resource.namespaced else "", owner.name),)


def _enqueuer(watch: _Watch, controller: Controller) -> Callable[[Change[Any]], None]:
    def enqueue(change: Change[Any]) -> None:
        if watch.predicate is not None and not watch.predicate(change):
            return
        # Both sides of an update: one that moves to another owner concerns the former one too.
        for obj in (change.old, change.new):
            if obj is not None:
                for request in watch.map(obj):
                    controller.queue.add(request)

    return enqueue
