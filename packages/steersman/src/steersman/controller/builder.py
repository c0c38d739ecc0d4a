"""Says what a controller watches, and builds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from steersman.cache import Informer, InformerEvent
from steersman.controller.controller import Controller, TraceSpan
from steersman.controller.events import EVENT_RESOURCE
from steersman.controller.handlers import MapFunc, ReferencedBy, enqueue_object, enqueue_owner
from steersman.controller.permissions import READ_VERBS, Permission
from steersman.controller.predicates import PredicateFunc, all_of
from steersman.controller.queue import LOW_PRIORITY, NORMAL_PRIORITY
from steersman.controller.reconciler import Reconciler, ReconcilerContext, Request
from steersman.controller.sources import Source
from steersman.controller.spec import ControllerOptions, ControllerSpec
from steersman.controller.triggers import INITIAL, Trigger, is_unchanged
from steersman.errors import ConfigurationError
from steersman.meta import Object

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)

ReconcilerFactory = Callable[[ReconcilerContext], Reconciler[T]]


_FOR, _OWNS = "for", "owns"


@dataclass(frozen=True, slots=True)
class _Watch:
    kind: type[Any]
    origin: str
    map: MapFunc[Any] | ReferencedBy[Any]
    predicate: PredicateFunc | None
    priority: int = NORMAL_PRIORITY


class Builder(Generic[T]):
    """Made by ``Manager.controller(kind)``; ``complete`` ends the chain.

    Example:
        ``manager.controller(WebApp).owns(Deployment).owns(Service).complete(WebAppReconciler)``
    """

    def __init__(
        self,
        kind: type[T],
        *,
        context: Callable[[ControllerSpec], ReconcilerContext],
        informer: Callable[[type[Any]], Informer[Any]],
        register: Callable[[Controller], None],
        trace_span: Callable[[ControllerSpec], TraceSpan] | None = None,
    ) -> None:
        self._kind = kind
        self._context = context
        self._informer = informer
        self._register = register
        self._trace_span = trace_span
        self._watches: list[_Watch] = [_Watch(kind, _FOR, enqueue_object, None)]
        self._event_filters: list[PredicateFunc] = []
        self._indexes: list[tuple[type[Any], str, Callable[[Any], Iterable[str]]]] = []
        self._sources: list[Source] = []
        self._name = kind.api_resource.kind.lower()
        self._options = ControllerOptions()
        resource = kind.api_resource
        self._permissions: list[Permission] = [
            Permission(resource, (*READ_VERBS, "patch")),
            Permission(resource, ("patch",), "status"),
            # Owner references that block the owner's deletion need it, where admission enforces that.
            Permission(resource, ("update",), "finalizers"),
            Permission(EVENT_RESOURCE, ("create", "patch")),
        ]

    def named(self, name: str) -> Builder[T]:
        """Names the controller in logs and metrics; the lower-case kind unless told."""
        self._name = name
        return self

    def max_concurrent_reconciles(self, number: int) -> Builder[T]:
        """Lets ``number`` objects be reconciled at once; the same object never is. 1 unless told.

        Raises:
            ValueError: less than 1.
        """
        if number < 1:
            raise ValueError(f"max_concurrent_reconciles must be 1 or more, not {number}")
        self._options = replace(self._options, max_concurrent_reconciles=number)
        return self

    def base_retry_delay(self, seconds: float) -> Builder[T]:
        """Tries a failed reconcile again after ``seconds``, doubled with each further failure; 0.005 unless told.

        Raises:
            ValueError: not above 0.
        """
        if not seconds > 0:
            raise ValueError(f"base_retry_delay must be above 0 s, not {seconds}")
        self._options = replace(self._options, base_retry_delay=seconds)
        return self

    def max_retry_delay(self, seconds: float) -> Builder[T]:
        """Tries a failed reconcile again after ``seconds`` at most, however often it failed; 1000 unless told."""
        self._options = replace(self._options, max_retry_delay=seconds)
        return self

    def reconcile_timeout(self, seconds: float) -> Builder[T]:
        """Cancels a reconcile that takes longer than ``seconds``, and tries again; any time unless told.

        Raises:
            ValueError: not above 0.
        """
        if not seconds > 0:
            raise ValueError(f"reconcile_timeout must be above 0 s, not {seconds}")
        self._options = replace(self._options, reconcile_timeout=seconds)
        return self

    def needs_leader_election(self, needed: bool) -> Builder[T]:
        """Whether the controller runs in the leader only, which it does unless told, or in every replica."""
        self._options = replace(self._options, needs_leader_election=needed)
        return self

    def with_predicate(self, predicate: PredicateFunc) -> Builder[T]:
        """Reconciles on those changes of the kind itself that ``predicate`` lets through; of several, all must."""
        watch = self._watches[0]
        combined = predicate if watch.predicate is None else all_of(watch.predicate, predicate)
        self._watches[0] = replace(watch, predicate=combined)
        return self

    def with_event_filter(self, predicate: PredicateFunc) -> Builder[T]:
        """Reconciles on those changes, of all kinds that are watched, that ``predicate`` lets through.

        A request from a source passes it as a change of its object in which nothing changed.
        """
        self._event_filters.append(predicate)
        return self

    def with_priority(self, priority: int) -> Builder[T]:
        """Gives changes of the kind itself ``priority`` in the queue: 0 unless told, and higher goes first."""
        self._watches[0] = replace(self._watches[0], priority=priority)
        return self

    def owns(
        self,
        kind: type[Object],
        predicate: PredicateFunc | None = None,
        *,
        any_owner: bool = False,
        priority: int = NORMAL_PRIORITY,
    ) -> Builder[T]:
        """Reconciles the owner when an object of ``kind`` that it controls changes.

        Args:
            kind: what is owned.
            predicate: which changes count.
            any_owner: reconcile owners that are not its controller, too.
            priority: place in the queue.
        """
        mapper = enqueue_owner(self._kind.api_resource, any_owner=any_owner)
        self._watches.append(_Watch(kind, _OWNS, mapper, predicate, priority))
        return self

    def watches(
        self,
        kind: type[U],
        mapper: MapFunc[U] | ReferencedBy[T],
        predicate: PredicateFunc | None = None,
        *,
        priority: int = NORMAL_PRIORITY,
    ) -> Builder[T]:
        """Reconciles the objects that ``mapper`` names when an object of ``kind`` changes.

        Args:
            kind: what is watched.
            mapper: from the changed object to requests, or ``referenced_by``.
            predicate: which changes count.
            priority: place in the queue.

        Raises:
            ValueError: ``referenced_by`` another kind than the one that is reconciled.
        """
        if isinstance(mapper, ReferencedBy):
            mapper.require_kind(self._kind)
        self._watches.append(_Watch(kind, "watches", cast("Any", mapper), predicate, priority))
        return self

    def index(self, kind: type[U], name: str, values: Callable[[U], Iterable[str]]) -> Builder[T]:
        """Indexes the cached objects of ``kind`` by what ``values`` gives, for ``store.by_index(name, value)``."""
        self._indexes.append((kind, name, values))
        return self

    def source(self, source: Source) -> Builder[T]:
        """Reconciles what ``source`` says: a ``Channel`` for events from outside, ``Every`` so many seconds, …"""
        self._sources.append(source)
        return self

    def rbac(self, kind: type[Object], *verbs: str, subresource: str = "") -> Builder[T]:
        """Declares for RBAC what the reconciler does beyond watching: ``.rbac(Deployment, "create", "patch")``."""
        self._permissions.append(Permission(kind.api_resource, verbs, subresource))
        return self

    def complete(self, factory: ReconcilerFactory[T]) -> Controller:
        """Builds the controller and hands it to the manager.

        Args:
            factory: the reconciler's class, or any callable that makes one from a ``Context``.

        Raises:
            ConfigurationError: an index of that name exists already, or the manager has a controller of that name.
        """
        spec = self._spec()
        context = self._context(spec)
        self._add_indexes()
        controller = Controller(
            spec,
            factory(context),
            runtime=context.runtime,
            trace_span=None if self._trace_span is None else self._trace_span(spec),
        )
        self._register(controller)
        for number, watch in enumerate(self._watches):
            informer = self._informer(watch.kind)
            informer.subscribe(
                _event_handler(self._resolve_mapper(watch, number), tuple(self._event_filters), controller)
            )
        return controller

    def _spec(self) -> ControllerSpec:
        get_cached = self._informer(self._kind).store.get
        watched = (Permission(watch.kind.api_resource, READ_VERBS) for watch in self._watches)
        return ControllerSpec(
            name=self._name,
            resource=self._kind.api_resource,
            get_cached=get_cached,
            options=self._options,
            sources=tuple(self._sources),
            source_filter=self._source_filter(get_cached),
            owned_resources=tuple(w.kind.api_resource for w in self._watches if w.origin == _OWNS),
            permissions=(*self._permissions, *watched),
        )

    def _add_indexes(self) -> None:
        for kind, name, values in self._indexes:
            try:
                self._informer(kind).store.add_index(name, values)
            except ValueError as error:
                where = f"controller {self._name!r}, {kind.api_resource.kind}"
                raise ConfigurationError(f"{where}: {error} already; choose another name") from error

    def _resolve_mapper(self, watch: _Watch, number: int) -> _Watch:
        """``watch`` with a mapping that is ready to use."""
        mapper: Any = watch.map
        if not isinstance(mapper, ReferencedBy):
            return watch
        index = f"{self._name}/{watch.kind.api_resource.kind}/{number}"
        references = cast("ReferencedBy[Any]", mapper)
        return replace(watch, map=references.map_func(watch.kind, self._informer(self._kind), index))

    def _source_filter(self, get_cached: Callable[[Request], T | None]) -> Callable[[Request], bool] | None:
        """Whether a request from a source passes the event filters; None where there are none."""
        if not self._event_filters:
            return None
        passes_filters = all_of(*self._event_filters)

        def accept(request: Request) -> bool:
            obj = get_cached(request)
            return obj is None or passes_filters(InformerEvent(obj, obj))

        return accept


def _event_handler(
    watch: _Watch, filters: tuple[PredicateFunc, ...], controller: Controller
) -> Callable[[InformerEvent[Any]], None]:
    add, origin, mapper, change_priority = controller.queue.add, watch.origin, watch.map, watch.priority
    predicates = filters if watch.predicate is None else (*filters, watch.predicate)
    assert not isinstance(mapper, ReferencedBy)

    def enqueue(event: InformerEvent[Any]) -> None:
        if event.new is None and not controller.started:
            if origin in (_FOR, _OWNS):
                _discard_deleted(mapper(event.object), controller)
            return
        for predicate in predicates:
            if not predicate(event):
                return
        priority = LOW_PRIORITY if event.is_initial_list or is_unchanged(event) else change_priority
        if mapper is enqueue_object:
            reported = event if controller.started else InformerEvent(None, event.new, is_initial_list=True)
            add(event.object.key, priority=priority, trigger=Trigger(origin, reported))
            return
        # While a replica stands by its queue grows to all objects: it must not hold former states of others as well.
        trigger = Trigger(origin, event) if controller.started else INITIAL
        for request in _requests_for(mapper, event):
            add(request, priority=priority, trigger=trigger)

    return enqueue


def _discard_deleted(requests: Iterable[Request], controller: Controller) -> None:
    """An object that leads to ``requests`` was deleted before the controller started.

    A process that starts now would never know of it. A replica that stands by for weeks must not either, or its queue
    would hold every key that there ever was: the object's own, and that of a deleted owner whose last object goes.
    """
    for request in requests:
        if not controller.exists(request):
            controller.queue.discard(request)


def _requests_for(mapper: MapFunc[Any], event: InformerEvent[Any]) -> Iterable[Request]:
    old, new = event.old, event.new
    if old is None or new is None:
        return mapper(event.object)
    # Both sides of an update: one that moves to another owner concerns the former one too.
    return dict.fromkeys((*mapper(old), *mapper(new)))
