"""The builder: declares what a controller watches, and creates it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from steersman.cache import IndexedStore, Informer, InformerEvent
from steersman.cache.optional_informer import OptionalInformer
from steersman.controller.controller import Controller, TraceSpan
from steersman.controller.events import EVENT_RESOURCE
from steersman.controller.functions import ReconcileFunc, new_reconciler
from steersman.controller.handlers import MapFunc, ReferencedBy, enqueue_object, enqueue_owner
from steersman.controller.permissions import (
    OWNER_VERBS,
    READ_VERBS,
    Permission,
    is_secret,
    require_prunable,
    require_secret_permissions,
)
from steersman.controller.predicates import PredicateFunc, all_of
from steersman.controller.queue import LOW_PRIORITY, NORMAL_PRIORITY
from steersman.controller.reconciler import Reconciler, ReconcilerContext, RequestReconciler
from steersman.controller.request import Request
from steersman.controller.sources import Source
from steersman.controller.spec import ControllerOptions, ControllerSpec
from steersman.controller.threads import SyncReconcileFunc
from steersman.controller.triggers import INITIAL, Trigger, is_unchanged
from steersman.errors import ConfigurationError
from steersman.meta import Object, ObjectKey
from steersman.meta.custom_resource import ResourceOptions

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)

ReconcilerFactory = (
    Callable[[ReconcilerContext], Reconciler[T] | RequestReconciler[T]] | ReconcileFunc[T] | SyncReconcileFunc[T]
)
"""A reconciler class, a factory of reconcilers, or ``reconcile(ctx, obj)``."""


_FOR, _OWNS = "for", "owns"


@dataclass(frozen=True, slots=True)
class _Watch:
    kind: type[Any]
    origin: str
    map: MapFunc[Any] | ReferencedBy[Any]
    predicate: PredicateFunc | None
    priority: int = NORMAL_PRIORITY
    optional: bool = False
    prune: bool = False


class _GetInformer(Protocol):
    def __call__(self, kind: type[Any], *, optional: bool | None = None) -> Informer[Any]: ...


class Builder(Generic[T]):
    """Collects the declaration of a controller: see ``Manager.controller``.

    ``complete`` ends the chain.

    Example:
        ``manager.controller(WebApp).owns(Deployment).owns(Service).complete(WebAppReconciler)``
    """

    def __init__(
        self,
        kind: type[T],
        *,
        context: Callable[[ControllerSpec], ReconcilerContext],
        informer: _GetInformer,
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
            # The admission plugin OwnerReferencesPermissionEnforcement requires it for blockOwnerDeletion.
            Permission(resource, ("update",), "finalizers"),
            Permission(EVENT_RESOURCE, ("create", "patch")),
        ]

    def named(self, name: str) -> Builder[T]:
        """Set the name in logs and metrics. Defaults to the lower-case kind.

        It is also part of the default finalizer and of the label of dependents. Set ``Reconciler.finalizer`` to the
        previous finalizer before you rename controller or operator. Otherwise their objects are not cleaned up.
        """
        self._name = name
        return self

    def max_concurrent_reconciles(self, number: int) -> Builder[T]:
        """Set the number of workers. Defaults to 1.

        Raises:
            ValueError: less than 1.
        """
        if number < 1:
            raise ValueError(f"max_concurrent_reconciles must be 1 or more, not {number}")
        self._options = replace(self._options, max_concurrent_reconciles=number)
        return self

    def base_retry_delay(self, seconds: float) -> Builder[T]:
        """Set the delay of the first retry. Defaults to 0.005 seconds.

        It doubles with each further failure.

        Raises:
            ValueError: not above 0, or above ``max_retry_delay``.
        """
        return self._set_retry_delays("base_retry_delay", seconds)

    def max_retry_delay(self, seconds: float) -> Builder[T]:
        """Set the upper limit of the retry delay. Defaults to 1000 seconds.

        Raises:
            ValueError: not above 0, or below ``base_retry_delay``.
        """
        return self._set_retry_delays("max_retry_delay", seconds)

    def _set_retry_delays(self, option: str, seconds: float) -> Builder[T]:
        if not seconds > 0:
            raise ValueError(f"{option} must be above 0 s, not {seconds}")
        options = replace(self._options, **{option: seconds})
        base, limit = options.base_retry_delay, options.max_retry_delay
        if limit < base:
            raise ValueError(
                f"max_retry_delay ({limit:g} s) is below base_retry_delay ({base:g} s): set the other first"
            )
        self._options = options
        return self

    def reconcile_timeout(self, seconds: float) -> Builder[T]:
        """Cancel and retry a reconcile after ``seconds``. Defaults to no limit.

        Raises:
            ValueError: not above 0.
        """
        if not seconds > 0:
            raise ValueError(f"reconcile_timeout must be above 0 s, not {seconds}")
        self._options = replace(self._options, reconcile_timeout=seconds)
        return self

    def needs_leader_election(self, needed: bool) -> Builder[T]:
        """Run the controller in the leader only, or in every replica. Defaults to True."""
        self._options = replace(self._options, needs_leader_election=needed)
        return self

    def with_predicate(self, predicate: PredicateFunc) -> Builder[T]:
        """Filter events of the kind itself. Several predicates are combined with AND."""
        watch = self._watches[0]
        combined = predicate if watch.predicate is None else all_of(watch.predicate, predicate)
        self._watches[0] = replace(watch, predicate=combined)
        return self

    def with_event_filter(self, predicate: PredicateFunc) -> Builder[T]:
        """Filter events of all watched kinds.

        A request from a source is tested as an event of its object without a change.
        """
        self._event_filters.append(predicate)
        return self

    def with_priority(self, priority: int) -> Builder[T]:
        """Set the priority of events of the kind itself. Defaults to 0; higher first."""
        self._watches[0] = replace(self._watches[0], priority=priority)
        return self

    def owns(
        self,
        kind: type[Object],
        predicate: PredicateFunc | None = None,
        *,
        any_owner: bool = False,
        priority: int = NORMAL_PRIORITY,
        optional: bool = False,
        prune: bool = False,
    ) -> Builder[T]:
        """Reconcile the owner when an object of ``kind`` that it controls changes.

        It grants get, list, watch, create and patch. ``needs`` declares other verbs, such as delete. On Secrets it
        grants nothing: ``needs`` must name the verbs.

        Args:
            kind: the owned kind.
            predicate: filters the events. Defaults to all.
            any_owner: reconcile owners that are not the controller as well.
            priority: priority in the queue.
            optional: the server need not serve ``kind``. The informer runs while discovery shows it, and readiness
                does not wait for it. All objects are reconciled when it appears or disappears. Defaults to False.
            prune: ``self.dependents`` deletes objects that are no longer declared. It grants delete. Defaults to
                False.

        Raises:
            ValueError: ``prune`` is True for a kind whose deletion deletes data.
        """
        if prune:
            require_prunable(kind.api_resource)
        mapper = enqueue_owner(self._kind.api_resource, any_owner=any_owner)
        self._watches.append(_Watch(kind, _OWNS, mapper, predicate, priority, optional, prune))
        return self

    def watches(
        self,
        kind: type[U],
        mapper: MapFunc[U] | ReferencedBy[T],
        predicate: PredicateFunc | None = None,
        *,
        priority: int = NORMAL_PRIORITY,
        optional: bool = False,
    ) -> Builder[T]:
        """Reconcile the objects that ``mapper`` returns when an object of ``kind`` changes.

        Args:
            kind: the watched kind.
            mapper: returns the requests for the changed object, or ``referenced_by``.
            predicate: filters the events. Defaults to all.
            priority: priority in the queue.
            optional: see ``owns``.

        Raises:
            ValueError: ``referenced_by`` has another kind than the reconciled one.
        """
        if isinstance(mapper, ReferencedBy):
            mapper.require_kind(self._kind)
        self._watches.append(_Watch(kind, "watches", cast("Any", mapper), predicate, priority, optional))
        return self

    def index(self, kind: type[U], name: str, values: Callable[[U], Iterable[str]]) -> Builder[T]:
        """Index cached objects of ``kind``, for ``client.list(index=…)``.

        It creates the informer of a kind that is not watched, and grants get, list and watch. On Secrets it grants
        nothing.

        Args:
            kind: the kind of the objects.
            name: the name of the index.
            values: returns the index values of an object.
        """
        self._indexes.append((kind, name, values))
        return self

    def source(self, source: Source) -> Builder[T]:
        """Add a source of requests, such as a ``Channel`` or a ``Ticker``."""
        self._sources.append(source)
        return self

    def needs(
        self, kind: type[Object], *verbs: str, subresource: str = "", names: tuple[str, ...] = ()
    ) -> Builder[T]:
        """Declare RBAC permissions: ``.needs(Secret, "get", names=("token",))``.

        The permissions that the builder's other declarations imply need not be repeated: to read watched kinds, to
        create and patch owned kinds, and to patch the kind itself, its finalizers and its status.

        Args:
            kind: the kind of the objects.
            verbs: such as ``delete``.
            subresource: such as ``scale``. Defaults to the objects themselves.
            names: names of objects. Defaults to all objects.

        Raises:
            ValueError: the verbs or names are not a valid declaration.
        """
        self._permissions.append(Permission(kind.api_resource, verbs, subresource, names))
        return self

    # Overloads instead of the union: a type checker would take the last member for the argument of a lambda.
    @overload
    def complete(
        self, factory: Callable[[ReconcilerContext], Reconciler[T] | RequestReconciler[T]]
    ) -> Controller: ...
    @overload
    def complete(self, factory: ReconcileFunc[T]) -> Controller: ...
    @overload
    def complete(self, factory: SyncReconcileFunc[T]) -> Controller: ...
    def complete(self, factory: ReconcilerFactory[T]) -> Controller:
        """Create the controller and register it with the manager.

        Args:
            factory: the class of a ``Reconciler`` or ``RequestReconciler``, a function that creates one from a
                ``ReconcilerContext``, or a function ``reconcile(ctx, obj)``. Without ``async``, it runs in a thread
                and receives a ``BlockingContext``.

        Raises:
            ConfigurationError: an index or a controller of that name exists, Secrets are owned without
                ``needs(Secret, …)``, or a kind is optional here and required elsewhere.
        """
        # First: what follows creates required informers.
        informers = [self._informer(watch.kind, optional=watch.optional) for watch in self._watches]
        spec = self._spec()
        context = self._context(spec)
        self._add_indexes()
        controller = Controller(
            spec,
            new_reconciler(factory, context, self._kind, self._name),
            runtime=context.runtime,
            trace_span=None if self._trace_span is None else self._trace_span(spec),
        )
        self._register(controller)
        handlers = [
            _event_handler(self._resolve_mapper(watch, number), tuple(self._event_filters), controller)
            for number, watch in enumerate(self._watches)
        ]
        for informer, handler in zip(informers, handlers, strict=True):
            informer.subscribe(handler)
            if isinstance(informer, OptionalInformer):
                informer.on_served_change(partial(_reconcile_all, informers[0].store, handlers[0]))
        return controller

    def _spec(self) -> ControllerSpec:
        get_cached = self._informer(self._kind).store.get
        return ControllerSpec(
            name=self._name,
            resource=self._kind.api_resource,
            get_cached=get_cached,
            options=self._options,
            sources=tuple(self._sources),
            source_filter=self._source_filter(get_cached),
            owned_kinds=tuple(w.kind for w in self._watches if w.origin == _OWNS),
            prunable_kinds=tuple(w.kind for w in self._watches if w.prune),
            permissions=self._all_permissions(),
            short_names=_short_names(self._kind),
        )

    def _all_permissions(self) -> tuple[Permission, ...]:
        """The declared permissions, and those that the watches imply."""
        owned = [w for w in self._watches if w.origin == _OWNS]
        read = [w.kind.api_resource for w in self._watches if w.origin != _OWNS]
        # An index creates the informer of its kind.
        known = {w.kind.api_resource for w in self._watches}
        indexed = {kind.api_resource for kind, _, _ in self._indexes} - known
        read += sorted(resource for resource in indexed if not is_secret(resource))
        declared = (*self._permissions, *(Permission(resource, READ_VERBS) for resource in read))
        granted: list[Permission] = []
        for watch in owned:
            resource, verbs = watch.kind.api_resource, (*OWNER_VERBS, "delete") if watch.prune else OWNER_VERBS
            if is_secret(resource):
                require_secret_permissions(declared, verbs, where=f"controller {self._name!r}")
            else:
                granted.append(Permission(resource, verbs))
        return (*declared, *granted)

    def _add_indexes(self) -> None:
        for kind, name, values in self._indexes:
            try:
                self._informer(kind).store.add_index(name, values)
            except ValueError as error:
                where = f"controller {self._name!r}, {kind.api_resource.kind}"
                raise ConfigurationError(f"{where}: {error} already; choose another name") from error

    def _resolve_mapper(self, watch: _Watch, number: int) -> _Watch:
        """Replace ``referenced_by`` by its map function."""
        mapper: Any = watch.map
        if not isinstance(mapper, ReferencedBy):
            return watch
        index = f"{self._name}/{watch.kind.api_resource.kind}/{number}"
        references = cast("ReferencedBy[Any]", mapper)
        return replace(watch, map=references.map_func(watch.kind, self._informer(self._kind), index))

    def _source_filter(self, get_cached: Callable[[ObjectKey], T | None]) -> Callable[[ObjectKey], bool] | None:
        """Return the event filters as a filter of requests, or None."""
        if not self._event_filters:
            return None
        passes_filters = all_of(*self._event_filters)

        def accept(request: ObjectKey) -> bool:
            obj = get_cached(request)
            return obj is None or passes_filters(InformerEvent(obj, obj))

        return accept


def _short_names(kind: type[Object]) -> tuple[str, ...]:
    options = getattr(kind, "resource_options", None)
    return options.short_names if isinstance(options, ResourceOptions) else ()


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
            meta = event.object.metadata
            add(Request(meta.namespace, meta.name), priority=priority, trigger=Trigger(origin, reported))
            return
        # The queue of a standby contains all objects. It must not keep old states in memory as well.
        trigger = Trigger(origin, event) if controller.started else INITIAL
        for key in _requests_for(mapper, event):
            request = key if isinstance(key, Request) else Request.of(key)
            add(request, priority=priority, trigger=trigger)

    return enqueue


def _reconcile_all(store: IndexedStore[Any], handler: Callable[[InformerEvent[Any]], None]) -> None:
    """Enqueue all objects, as if they were listed for the first time."""
    for obj in store:
        store.notify(InformerEvent(None, obj, is_initial_list=True), handler)


def _discard_deleted(requests: Iterable[ObjectKey], controller: Controller) -> None:
    """Remove waiting requests for deleted objects before the controller starts.

    Without it, the queue of a standby would grow by the key of every object that ever existed.
    """
    for request in requests:
        if not controller.exists(request):
            controller.queue.discard(Request.of(request))


def _requests_for(mapper: MapFunc[Any], event: InformerEvent[Any]) -> Iterable[ObjectKey]:
    old, new = event.old, event.new
    if old is None or new is None:
        return mapper(event.object)
    # Old and new object: if the owner changes, both owners are reconciled.
    return dict.fromkeys((*mapper(old), *mapper(new)))
