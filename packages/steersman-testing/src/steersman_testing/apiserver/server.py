"""The in-memory API server: a transport without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.crd import definitions
from steersman.errors import ApiError, ConnectionFailed, Status, error_from_status
from steersman.meta import ApiResource, Object, ObjectKey, to_builtins
from steersman.meta.declaration import is_declared
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import (
    ADMINISTRATOR,
    Authorizer,
    User,
    impersonated,
)
from steersman_testing.apiserver.access.grants import RoleLike, granting
from steersman_testing.apiserver.access.impersonation import Impersonated
from steersman_testing.apiserver.access.reviews import Reviews
from steersman_testing.apiserver.access.tokens import Tokens
from steersman_testing.apiserver.admission.allocation import Allocator
from steersman_testing.apiserver.admission.chain import Admission
from steersman_testing.apiserver.aggregation import Aggregation
from steersman_testing.apiserver.callouts import Callouts, Handler
from steersman_testing.apiserver.collector import Collector
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.definitions.controller import DefinitionController
from steersman_testing.apiserver.definitions.conversion import Conversion
from steersman_testing.apiserver.deletion import FIRST_NAMESPACES, Deletion
from steersman_testing.apiserver.dispatch import Dispatcher, is_watch
from steersman_testing.apiserver.faults import Failure, Faults, Moment, Predicate, failure_for
from steersman_testing.apiserver.incoming import Incoming
from steersman_testing.apiserver.kinds import DEFINITIONS, GroupResource, KindRegistry, registered_kind
from steersman_testing.apiserver.requests.media import APPLY
from steersman_testing.apiserver.requests.routes import find_route
from steersman_testing.apiserver.settling import R, Runner, Settling, run
from steersman_testing.apiserver.storage import Event, Storage, Stored
from steersman_testing.apiserver.subresources import Subresources
from steersman_testing.apiserver.transports import UserTransport, each, unbroken
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.watching import Watch, encode_status
from steersman_testing.apiserver.writes import Writer

T = TypeVar("T", bound=Object)
# Each test has a server of its own, and all have the same kinds.
_definitions = lru_cache(maxsize=128)(definitions)


class InMemoryApiServer:
    """A Kubernetes API server as a ``Transport``: hand it to a ``Client`` or a manager in place of a connection.

    See the package's text for what it imitates and what not.

    Args:
        runtime: clock and randomness, for timestamps, UIDs and generated names.
        controllers: whether dependents are collected, namespaces emptied and so on, right after each write. Off,
            it behaves as envtest does, where nobody runs the controller manager; ``collect_garbage`` does it once.
        service_addresses: the range of the cluster addresses of Services, in CIDR notation; that of envtest unless
            told, in which 253 fit beside that of `kubernetes`.

    Raises:
        ValueError: ``service_addresses`` is no range.

    Attributes:
        requests: all requests so far, refused ones included. Tests may clear it.
        reviews: what a TokenReview and a SubjectAccessReview are answered.
        refused: what RBAC has refused to users so far, in its own words. Tests may clear it.
        logs: the lines of a pod's log, by its key; at first there are none.
    """

    def __init__(
        self, runtime: Runtime | None = None, *, controllers: bool = True, service_addresses: str = "10.0.0.0/24"
    ) -> None:
        self._callouts = Callouts(runtime or Runtime())
        self._runtime = self._callouts.runtime
        self._controllers = controllers
        self._kinds = KindRegistry()
        self._storage = Storage()
        self._conversion = Conversion(self._callouts)
        self._writer = Writer(self._storage, self._runtime, self._after_write)
        self._definitions = DefinitionController(self._storage, self._writer, self._kinds)
        self._authorizer = Authorizer(self._storage, aggregates=controllers)
        self.refused = self._authorizer.refused
        self._admission = Admission(self._storage, self._kinds, self._callouts)
        self._verbs = Verbs(
            self._storage,
            self._kinds,
            self._writer,
            self._runtime,
            self._conversion,
            self._authorizer,
            self._admission,
            Incoming(self._kinds, self._admission.warnings),
            Allocator(self._storage, self._runtime.random, ip_network(service_addresses)),
        )
        requests = ControllerRequests(self._verbs)
        self._collector = Collector(self._storage, self._kinds, requests)
        aggregation = Aggregation(self._storage, requests)
        self._settling = Settling(
            self._storage, self._callouts, self._definitions, requests, controllers, aggregation, self._collector
        )
        self._deletion = Deletion(self._storage, self._writer, self._conversion, self._admission)
        self._tokens = Tokens(self._storage, self._runtime.clock)
        self._subresources = Subresources(self._verbs, self._deletion, self._tokens)
        self.reviews = Reviews(self._tokens, self._authorizer, self._writer.timestamp, self._verbs.incoming)
        self.logs = self._subresources.logs.lines
        self._dispatcher = Dispatcher(self._verbs, self._deletion, self._subresources, self.reviews)
        self._faults = Faults()
        self.requests: list[HttpRequest] = []
        for name in FIRST_NAMESPACES:
            self._load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "kube-apiserver")

    # The transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request``. Raises ConnectionFailed where ``fail_next`` asked for it."""
        return await self._request(request, _administrator)

    async def trace(self, request: HttpRequest) -> tuple[HttpResponse, tuple[Event, ...]]:
        """Answers ``request``, and says what it changed: only it, not what others changed meanwhile."""
        changed: list[Event] = []

        def noted(part: Callable[[], R]) -> R:
            # Of each run: others change something while webhooks are waited for.
            before = self._storage.version
            try:
                return part()
            finally:
                changed.extend(self._storage.since(before))

        return await self._carry(request, _administrator, noted), tuple(changed)

    async def _request(self, request: HttpRequest, identify: Callable[[], User]) -> HttpResponse:
        return await self._carry(request, identify, run)

    async def _carry(self, request: HttpRequest, identify: Callable[[], User], runner: Runner) -> HttpResponse:
        self.requests.append(request)
        before, after = self._faults.take(request)
        # Other tasks run while a request is on its way, and while its answer is.
        await asyncio.sleep(0)
        if before is not None:
            response = _failed(before)
        else:
            response = await self._callouts.complete(lambda: runner(lambda: self._answer(request, identify)))
            if request.method != "GET":
                # After a refusal, too: of a collection, some may be gone.
                try:
                    await self._settling.complete(lambda: runner(self._settling.step))
                except ApiError as error:
                    response = refusal(error)
        if after is not None:
            response = _failed(after)
        await asyncio.sleep(0)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Opens a watch. Raises ApiError and ConnectionFailed as a connection does."""
        return self._stream(request, _administrator)

    @asynccontextmanager
    async def _stream(
        self, request: HttpRequest, identify: Callable[[], User]
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self.requests.append(request)
        before, after = self._faults.take(request)
        await asyncio.sleep(0)
        if failure := before or after:
            raise failure
        user = identify()
        self._authorizer.check_request(user, request)
        route = find_route(request.path, self._kinds)
        if route.subresource:
            yield each(self._subresources.stream(route, request, user))
            return
        if not is_watch(request):
            raise failures.refused_here(f"streaming {request.path} without watch=true")
        watch = Watch(self._storage, route, request, self._runtime, self._conversion)
        async with aclosing(unbroken(watch, request)) as lines:
            yield lines

    @property
    def runtime(self) -> Runtime:
        """Clock and randomness, for the manager that works on this server."""
        return self._runtime

    async def close(self) -> None:
        """Does nothing: there is no connection, and the server lives on for other clients."""

    # Users and webhooks

    def as_user(
        self, name: str, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None
    ) -> Transport:
        """The server as the user ``name`` meets it, who may do what RBAC says and nothing else.

        It is what the administrator gets by impersonation: the user is a member of ``system:authenticated``, too, and
        a service account, ``system:serviceaccount:NAMESPACE:NAME``, of the groups of its namespace's accounts.

        Args:
            groups: which the user is a member of; of ``system:masters`` to be an administrator.
            extra: further facts, which webhooks are told.
        """
        told = {k: tuple(v) for k, v in (extra or {}).items()}
        return self.as_identity(impersonated(name, tuple(groups), told))

    def as_identity(self, user: User) -> Transport:
        """As ``as_user``, for a user as ``authenticate`` gives it."""
        return self._known_by(lambda: user)

    def as_bearer(self, token: str, acting: Impersonated | None = None) -> Transport:
        """The server as who shows the bearer token ``token`` meets it: 401 wherever ``authenticate`` gives nobody.

        Args:
            acting: whom the holder wants to be, by impersonation; 403 where RBAC does not let the holder.
        """
        return self._known_by(lambda: self._bearer(token, acting))

    def _known_by(self, identify: Callable[[], User]) -> Transport:
        return UserTransport(lambda r: self._request(r, identify), lambda r: self._stream(r, identify))

    def _bearer(self, token: str, acting: Impersonated | None) -> User:
        user = self.authenticate(token)
        if user is None:
            raise failures.unauthorized()
        if acting is None:
            return user
        acting.check(self._authorizer, user)
        return acting.user()

    def authenticate(self, token: str) -> User | None:
        """Who shows the bearer token ``token``: that of a TokenRequest, or one of ``reviews.users``; None: nobody."""
        return self._tokens.authenticate(token)

    def grant(self, user: str, *roles: RoleLike, namespace: str = "") -> None:
        """Lets ``user`` do what ``roles`` say, beside what the user may do already.

        So a test proves that the generated permissions of an operator suffice: the operator works ``as_user``, has
        ``grant(user, cluster_role("operator", manager.permissions))`` and nothing else, and ``refused`` stays empty.

        Args:
            user: such as ``jane``, or ``system:serviceaccount:shop:till``.
            roles: names of ClusterRoles that exist, such as ``view``; or manifests of ClusterRoles and Roles, which
                are stored, in place of former ones of their names.
            namespace: where ClusterRoles count, and where Roles are that name no namespace; empty: everywhere.

        Raises:
            ValueError: a manifest is no role, or a Role has no namespace.
            ApiError: the server refuses one.
        """
        for role in roles:
            for manifest in granting(user, role, namespace):
                self._apply(manifest)

    def serve_webhook(self, target: str, handler: Handler) -> None:
        """Lets ``handler`` answer the webhook at ``target``.

        Args:
            target: the URL in the webhook's ``clientConfig``; for a Service, the name that it has in the cluster:
                ``https://NAME.NAMESPACE.svc:443/PATH``.
            handler: is given an AdmissionReview or ConversionReview with ``request``, in wire form, and returns one
                with ``response``. ConnectionFailed means that it cannot be reached; anything else that it raises ends
                the request that asks it.
        """
        self._callouts.serve(target, handler)

    # What tests do

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request`` at once, without faults and without recording it.

        Where something follows from it that needs a webhook's answer, which has to be waited for, that happens with
        the next write that comes by ``request``.

        Raises:
            RuntimeError: it needs a webhook's answer itself that has to be waited for.
        """
        response = self._callouts.finish(lambda: self._answer(request, _administrator))
        if request.method != "GET":
            try:
                self._settling.try_to_finish()
            except ApiError as error:
                response = refusal(error)
        return response

    def _answer(self, request: HttpRequest, identify: Callable[[], User]) -> HttpResponse:
        self._admission.warnings.clear()
        try:
            user = identify()
            self._authorizer.check_request(user, request)
            response = HttpResponse(*self._dispatcher.answer(request, user))
        except ApiError as error:
            response = refusal(error)
        warnings = self._warnings()
        return structs.replace(response, warnings=warnings) if warnings else response

    def _warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._admission.warnings))

    def register(self, *kinds: ApiResource | type[Object]) -> None:
        """Serves more kinds. A custom resource type is served by the CRD that is generated from it, with validation.

        Raises:
            SchemaError: a custom resource type cannot be expressed as a CRD.
        """
        custom: list[Any] = [k for k in kinds if not isinstance(k, ApiResource) and is_declared(k)]
        self.load(*_definitions(*custom))
        for kind in kinds:
            if isinstance(kind, ApiResource):
                self._kinds.add(registered_kind(kind))
            elif kind not in custom and self._kinds.find(*_names(kind.api_resource)) is None:
                self._kinds.add(registered_kind(kind.api_resource))

    def load(self, *manifests: JsonObject | Object) -> None:
        """Creates objects at once, as an administrator would before a test begins; in the namespace ``default`` where
        one names none, as kubectl does.

        Raises:
            ApiError: the server refuses one.
            ValueError: a manifest's kind is not served.
        """
        for manifest in manifests:
            self._load(_manifest(manifest))

    def _load(self, obj: JsonObject, manager: str = "") -> None:
        kind = self._kinds.named(obj.get("apiVersion", ""), obj.get("kind", ""))
        if kind is None:
            raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served: register it first")
        place = obj.get("metadata", {}).get("namespace") or "default"
        namespace = place if kind.resource.namespaced else ""
        path = kind.resource.path(namespace=namespace)
        query = {"fieldManager": manager} if manager else {}
        _check(self.answer(HttpRequest(method="POST", path=path, query=query, body=msgspec.json.encode(obj))))

    def _apply(self, manifest: JsonObject) -> None:
        """Creates an object at once, or replaces what the last call has set in it. Raises as ``load``."""
        kind = self._kinds.named(manifest["apiVersion"], manifest["kind"])
        assert kind is not None
        meta: JsonObject = manifest["metadata"]
        request = HttpRequest(
            method="PATCH",
            path=kind.resource.path(ObjectKey(meta.get("namespace", ""), meta["name"])),
            query={"fieldManager": "test", "force": "true"},
            body=msgspec.json.encode(manifest),
            content_type=APPLY,
        )
        _check(self.answer(request))

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object ``key`` as it is now, or None; no request is recorded."""
        names = kind.api_resource
        stored = self._storage.get(self._collection(names), key)
        return self._seen(names, stored).typed(kind) if stored is not None else None

    def _seen(self, names: ApiResource, stored: Stored) -> Stored:
        kind = self._kinds.find(*_names(names))
        if kind is None:
            return stored
        if kind.versions is None:
            return self._conversion.read(kind, stored)
        return self._callouts.finish(lambda: self._conversion.read(kind, stored))

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) as they are now; no request is recorded."""
        names = kind.api_resource
        found = self._storage.list(self._collection(names), namespace)
        return tuple(self._seen(names, stored).typed(kind) for stored in found)

    def manifest(self, resource: ApiResource | type[Object], key: ObjectKey) -> JsonObject | None:
        """The object ``key`` in wire form, managedFields included, or None."""
        names = resource if isinstance(resource, ApiResource) else resource.api_resource
        stored = self._storage.get(self._collection(names), key)
        return self._seen(names, stored).rendered(names.api_version) if stored is not None else None

    def manifests(self) -> Iterator[JsonObject]:
        """Every object in wire form, managedFields included, by collection, namespace and name."""
        for stored in self._storage.all():
            yield stored.rendered(stored.object["apiVersion"])

    def changes(self, exclude: Collection[str] = ()) -> int:
        """How many changes there were, but for those of ``exclude``: resources, such as ``deployments.apps``."""
        return sum(n for collection, n in self._storage.changes.items() if collection.qualified not in exclude)

    def history(self) -> Iterator[Event]:
        """All changes so far, in their order."""
        return self._storage.history()

    @property
    def writes(self) -> list[HttpRequest]:
        """The recorded requests that change something."""
        return [r for r in self.requests if r.method != "GET"]

    @property
    def resource_version(self) -> int:
        """The version of the last change."""
        return self._storage.version

    def fail_next(
        self,
        matches: Predicate,
        failure: Failure | int,
        *,
        when: Moment = "before",
        times: int = 1,
    ) -> None:
        """Lets the next requests that match fail.

        Args:
            matches: picks requests; ``matching("PUT", "/configmaps/")`` makes one.
            failure: an ``ApiError``, an HTTP status code, or ``ConnectionFailed``.
            when: ``before`` the request is carried out, or ``after``: the write is done, its answer is lost.
            times: how many requests.
        """
        self._faults.plan(matches, failure_for(failure) if isinstance(failure, int) else failure, when, times)

    def break_watches(self, resource: ApiResource | type[Object] | None = None) -> int:
        """Breaks the open watches of ``resource`` (None: all) as a lost connection does; returns how many."""
        if resource is None:
            return self._storage.break_subscriptions()
        names = resource if isinstance(resource, ApiResource) else resource.api_resource
        return self._storage.break_subscriptions(self._collection(names))

    def compact(self, version: int | None = None) -> None:
        """Forgets the history before ``version`` (None: the present one): watches from before, and pages of older
        lists, are refused with 410 from now on."""
        self._storage.compact(version)

    def collect_garbage(self) -> None:
        """Does what the garbage collector and the namespace controller would, with owners that never were, too.

        Raises:
            RuntimeError: a webhook has to be waited for: see ``garbage_collected``.
            ApiError: 501, a webhook cannot be asked here.
        """
        self._collector.sweep()
        self._settling.finish(self._settling.collect)

    async def garbage_collected(self) -> None:
        """``collect_garbage`` that waits for webhooks; where a request waits for some, that one goes on with it."""
        self._collector.sweep()
        await self._settling.complete(self._settling.collect)

    # Inside

    def _collection(self, names: ApiResource) -> GroupResource:
        kind = self._kinds.find(*_names(names))
        return GroupResource(names.group, names.plural) if kind is None else kind.collection

    def _after_write(self, stored: Stored) -> None:
        if stored.collection == DEFINITIONS:
            self._definitions.serve(stored)
        elif self._controllers:
            self._collector.written(stored)


def _administrator() -> User:
    return ADMINISTRATOR


def _check(response: HttpResponse) -> None:
    if response.status >= 400:
        raise error_from_status(msgspec.json.decode(response.body, type=Status))


def _failed(failure: Failure) -> HttpResponse:
    if isinstance(failure, ConnectionFailed):
        raise failure
    return refusal(failure)


def refusal(error: ApiError) -> HttpResponse:
    """``error`` as the real server sends it."""
    if error.status == failures.unknown_path().status:
        return HttpResponse(404, b"404 page not found\n")
    return HttpResponse(error.code, encode_status(error), error.retry_after)


def _names(resource: ApiResource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _manifest(source: JsonObject | Object) -> JsonObject:
    if not isinstance(source, Object):
        return source
    resource: Any = source.api_resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **to_builtins(source)}
