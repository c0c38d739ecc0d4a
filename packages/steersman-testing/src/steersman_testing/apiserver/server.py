"""The in-memory API server: a transport without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import structs

from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.crd import definitions
from steersman.errors import ApiError, ApiStatus, ConnectionFailed, error_from_status
from steersman.meta import ApiResource, Object, ObjectKey, to_builtins
from steersman.meta.custom_resource import is_decorated
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import (
    ADMIN_USER,
    Authorizer,
    RequestUser,
    impersonated_user,
)
from steersman_testing.apiserver.access.role_grants import RoleOrManifest, role_manifests
from steersman_testing.apiserver.access.tokens import TokenAuthenticator
from steersman_testing.apiserver.admission.allocation import ServiceAllocator
from steersman_testing.apiserver.admission.chain import AdmissionChain
from steersman_testing.apiserver.aggregation import ClusterRoleAggregator
from steersman_testing.apiserver.body_decoder import BodyDecoder
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.controllers import ControllerRunner, R, SectionRunner, run_section
from steersman_testing.apiserver.definition_controller import DefinitionController
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.deletion import INITIAL_NAMESPACES, DeletionHandler
from steersman_testing.apiserver.dispatch import Dispatcher, is_watch
from steersman_testing.apiserver.faults import Faults, FaultTiming, InjectedFailure, RequestMatcher, error_for_status
from steersman_testing.apiserver.garbage_collector import GarbageCollector
from steersman_testing.apiserver.kinds import DEFINITIONS, GroupResource, KindRegistry, schemaless_kind
from steersman_testing.apiserver.requests.media import APPLY
from steersman_testing.apiserver.requests.routes import find_route
from steersman_testing.apiserver.reviews import Reviews
from steersman_testing.apiserver.storage import Storage, StorageEvent, StoredObject
from steersman_testing.apiserver.subresources import SubresourceHandler
from steersman_testing.apiserver.transports import AuthenticatedTransport, encode_lines, watch_lines
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.watches import Watch, encode_status
from steersman_testing.apiserver.webhook_calls import WebhookCaller, WebhookHandler
from steersman_testing.apiserver.writes import StorageWriter

T = TypeVar("T", bound=Object)
# Each test has a server of its own, and all have the same kinds.
_cached_definitions = lru_cache(maxsize=128)(definitions)


class Impersonation(Protocol):
    """User that the sender of a request impersonates: see ``kubectl.impersonation``."""

    def authorize(self, authorizer: Authorizer, requester: RequestUser) -> RequestUser: ...


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
        self._webhook_caller = WebhookCaller(runtime or Runtime())
        self._runtime = self._webhook_caller.runtime
        self._run_controllers = controllers
        self._kinds = KindRegistry()
        self._storage = Storage()
        self._converter = VersionConverter(self._webhook_caller)
        self._writer = StorageWriter(self._storage, self._runtime, self._after_write)
        self._definition_controller = DefinitionController(self._storage, self._writer, self._kinds)
        self._authorizer = Authorizer(self._storage, aggregate_roles=controllers)
        self.rbac_denials = self._authorizer.denials
        self._admission = AdmissionChain(self._storage, self._kinds, self._webhook_caller)
        self._verbs = Verbs(
            self._storage,
            self._kinds,
            self._writer,
            self._runtime,
            self._converter,
            self._authorizer,
            self._admission,
            BodyDecoder(self._kinds, self._admission.warnings),
            ServiceAllocator(self._storage, self._runtime.random, ip_network(service_addresses)),
        )
        controller_requests = ControllerRequests(self._verbs)
        self._garbage_collector = GarbageCollector(self._storage, self._kinds, controller_requests)
        aggregator = ClusterRoleAggregator(self._storage, controller_requests)
        self._controller_runner = ControllerRunner(
            self._storage,
            self._webhook_caller,
            self._definition_controller,
            controller_requests,
            controllers,
            aggregator,
            self._garbage_collector,
        )
        self._deletion_handler = DeletionHandler(self._storage, self._writer, self._converter, self._admission)
        self._token_authenticator = TokenAuthenticator(self._storage, self._runtime.clock)
        self._subresources = SubresourceHandler(self._verbs, self._deletion_handler, self._token_authenticator)
        self.reviews = Reviews(
            self._token_authenticator, self._authorizer, self._writer.timestamp, self._verbs.body_decoder
        )
        self.pod_logs = self._subresources.pod_logs.lines
        self._dispatcher = Dispatcher(self._verbs, self._deletion_handler, self._subresources, self.reviews)
        self._faults = Faults()
        self.requests: list[HttpRequest] = []
        for name in INITIAL_NAMESPACES:
            self._load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "kube-apiserver")

    # The transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request``. Raises ConnectionFailed where ``fail_next`` asked for it."""
        return await self._request_as(request, _admin_user)

    async def request_with_events(self, request: HttpRequest) -> tuple[HttpResponse, tuple[StorageEvent, ...]]:
        """Answers ``request``, and says what it changed: only it, not what others changed meanwhile."""
        events: list[StorageEvent] = []

        def record_events(part: Callable[[], R]) -> R:
            # Of each run: others change something while webhooks are waited for.
            before = self._storage.version
            try:
                return part()
            finally:
                events.extend(self._storage.events_since(before))

        return await self._execute(request, _admin_user, record_events), tuple(events)

    async def _request_as(self, request: HttpRequest, identify: Callable[[], RequestUser]) -> HttpResponse:
        return await self._execute(request, identify, run_section)

    async def _execute(
        self, request: HttpRequest, identify: Callable[[], RequestUser], runner: SectionRunner
    ) -> HttpResponse:
        self.requests.append(request)
        failure_before, failure_after = self._faults.take_matching(request)
        # Other tasks run while a request is on its way, and while its answer is.
        await asyncio.sleep(0)
        if failure_before is not None:
            response = _injected_response(failure_before)
        else:
            response = await self._webhook_caller.run(lambda: runner(lambda: self._handle(request, identify)))
            if request.method != "GET":
                # After a refusal, too: of a collection, some may be gone.
                try:
                    await self._controller_runner.run(
                        lambda: runner(self._controller_runner.run_controllers_until_stable)
                    )
                except ApiError as error:
                    response = error_response(error)
        if failure_after is not None:
            response = _injected_response(failure_after)
        await asyncio.sleep(0)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Opens a watch. Raises ApiError and ConnectionFailed as a connection does."""
        return self._stream(request, _admin_user)

    @asynccontextmanager
    async def _stream(
        self, request: HttpRequest, identify: Callable[[], RequestUser]
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self.requests.append(request)
        failure_before, failure_after = self._faults.take_matching(request)
        await asyncio.sleep(0)
        if failure := failure_before or failure_after:
            raise failure
        user = identify()
        self._authorizer.check_request(user, request)
        route = find_route(request.path, self._kinds)
        if route.subresource:
            yield encode_lines(self._subresources.stream(route, request, user))
            return
        if not is_watch(request):
            raise failures.not_implemented(f"streaming {request.path} without watch=true")
        watch = Watch(self._storage, route, request, self._runtime, self._converter)
        async with aclosing(watch_lines(watch, request)) as lines:
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
        extra_values = {k: tuple(v) for k, v in (extra or {}).items()}
        return self.as_identity(impersonated_user(name, tuple(groups), extra_values))

    def as_identity(self, user: RequestUser) -> Transport:
        """As ``as_user``, for a user as ``authenticate`` gives it."""
        return self._transport_for(lambda: user)

    def as_bearer(self, token: str, impersonate: Impersonation | None = None) -> Transport:
        """The server as who shows the bearer token ``token`` meets it: 401 wherever ``authenticate`` gives nobody.

        Args:
            impersonate: whom the holder wants to be, by impersonation; 403 where RBAC does not let the holder.
        """
        return self._transport_for(lambda: self._authenticate_bearer(token, impersonate))

    def _transport_for(self, identify: Callable[[], RequestUser]) -> Transport:
        return AuthenticatedTransport(lambda r: self._request_as(r, identify), lambda r: self._stream(r, identify))

    def _authenticate_bearer(self, token: str, impersonate: Impersonation | None) -> RequestUser:
        user = self.authenticate(token)
        if user is None:
            raise failures.unauthorized()
        if impersonate is None:
            return user
        return impersonate.authorize(self._authorizer, user)

    def authenticate(self, token: str) -> RequestUser | None:
        """Who shows the bearer token ``token``: that of a TokenRequest, or one of ``reviews.users``; None: nobody."""
        return self._token_authenticator.authenticate(token)

    def grant(self, user: str, *roles: RoleOrManifest, namespace: str = "") -> None:
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
            for manifest in role_manifests(user, role, namespace):
                self._apply(manifest)

    def serve_webhook(self, target: str, handler: WebhookHandler) -> None:
        """Lets ``handler`` answer the webhook at ``target``.

        Args:
            target: the URL in the webhook's ``clientConfig``; for a Service, the name that it has in the cluster:
                ``https://NAME.NAMESPACE.svc:443/PATH``.
            handler: is given an AdmissionReview or ConversionReview with ``request``, in wire form, and returns one
                with ``response``. ConnectionFailed means that it cannot be reached; anything else that it raises ends
                the request that asks it.
        """
        self._webhook_caller.register_handler(target, handler)

    # What tests do

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request`` at once, without faults and without recording it.

        Where something follows from it that needs a webhook's answer, which has to be waited for, that happens with
        the next write that comes by ``request``.

        Raises:
            RuntimeError: it needs a webhook's answer itself that has to be waited for.
        """
        response = self._webhook_caller.run_sync(lambda: self._handle(request, _admin_user))
        if request.method != "GET":
            try:
                self._controller_runner.try_run_sync()
            except ApiError as error:
                response = error_response(error)
        return response

    def _handle(self, request: HttpRequest, identify: Callable[[], RequestUser]) -> HttpResponse:
        self._admission.warnings.clear()
        try:
            user = identify()
            self._authorizer.check_request(user, request)
            response = HttpResponse(*self._dispatcher.handle(request, user))
        except ApiError as error:
            response = error_response(error)
        warnings = self._warnings()
        return structs.replace(response, warnings=warnings) if warnings else response

    def _warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._admission.warnings))

    def register(self, *kinds: ApiResource | type[Object]) -> None:
        """Serves more kinds. A custom resource type is served by the CRD that is generated from it, with validation.

        Raises:
            SchemaError: a custom resource type cannot be expressed as a CRD.
        """
        custom: list[Any] = [k for k in kinds if not isinstance(k, ApiResource) and is_decorated(k)]
        self.load(*_cached_definitions(*custom))
        for kind in kinds:
            if isinstance(kind, ApiResource):
                self._kinds.add(schemaless_kind(kind))
            elif kind not in custom and self._kinds.find(*_gvr(kind.api_resource)) is None:
                self._kinds.add(schemaless_kind(kind.api_resource))

    def load(self, *manifests: JsonObject | Object) -> None:
        """Creates objects at once, as an administrator would before a test begins; in the namespace ``default`` where
        one names none, as kubectl does.

        Raises:
            ApiError: the server refuses one.
            ValueError: a manifest's kind is not served.
        """
        for manifest in manifests:
            self._load(_to_manifest(manifest))

    def _load(self, obj: JsonObject, manager: str = "") -> None:
        kind = self._kinds.find_by_gvk(obj.get("apiVersion", ""), obj.get("kind", ""))
        if kind is None:
            raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served: register it first")
        namespace_or_default = obj.get("metadata", {}).get("namespace") or "default"
        namespace = namespace_or_default if kind.resource.namespaced else ""
        path = kind.resource.path(namespace=namespace)
        query = {"fieldManager": manager} if manager else {}
        _raise_for_status(
            self.handle(HttpRequest(method="POST", path=path, query=query, body=msgspec.json.encode(obj)))
        )

    def _apply(self, manifest: JsonObject) -> None:
        """Creates an object at once, or replaces what the last call has set in it. Raises as ``load``."""
        kind = self._kinds.find_by_gvk(manifest["apiVersion"], manifest["kind"])
        assert kind is not None
        meta: JsonObject = manifest["metadata"]
        request = HttpRequest(
            method="PATCH",
            path=kind.resource.path(ObjectKey(meta.get("namespace", ""), meta["name"])),
            query={"fieldManager": "test", "force": "true"},
            body=msgspec.json.encode(manifest),
            content_type=APPLY,
        )
        _raise_for_status(self.handle(request))

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object ``key`` as it is now, or None; no request is recorded."""
        resource = kind.api_resource
        stored = self._storage.get(self._collection_of(resource), key)
        return self._from_storage(resource, stored).decode(kind) if stored is not None else None

    def _from_storage(self, resource: ApiResource, stored: StoredObject) -> StoredObject:
        kind = self._kinds.find(*_gvr(resource))
        if kind is None:
            return stored
        if kind.versions is None:
            return self._converter.from_storage(kind, stored)
        return self._webhook_caller.run_sync(lambda: self._converter.from_storage(kind, stored))

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) as they are now; no request is recorded."""
        resource = kind.api_resource
        found = self._storage.list(self._collection_of(resource), namespace)
        return tuple(self._from_storage(resource, stored).decode(kind) for stored in found)

    def manifest(self, resource: ApiResource | type[Object], key: ObjectKey) -> JsonObject | None:
        """The object ``key`` in wire form, managedFields included, or None."""
        api_resource = resource if isinstance(resource, ApiResource) else resource.api_resource
        stored = self._storage.get(self._collection_of(api_resource), key)
        return (
            self._from_storage(api_resource, stored).to_wire(api_resource.api_version) if stored is not None else None
        )

    def manifests(self) -> Iterator[JsonObject]:
        """Every object in wire form, managedFields included, by collection, namespace and name."""
        for stored in self._storage.all():
            yield stored.to_wire(stored.object["apiVersion"])

    def change_count(self, exclude: Collection[str] = ()) -> int:
        """How many changes there were, but for those of ``exclude``: resources, such as ``deployments.apps``."""
        return sum(n for collection, n in self._storage.changes.items() if collection.qualified not in exclude)

    def history(self) -> Iterator[StorageEvent]:
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
        matches: RequestMatcher,
        failure: InjectedFailure | int,
        *,
        when: FaultTiming = "before",
        times: int = 1,
    ) -> None:
        """Lets the next requests that match fail.

        Args:
            matches: picks requests; ``matching("PUT", "/configmaps/")`` makes one.
            failure: an ``ApiError``, an HTTP status code, or ``ConnectionFailed``.
            when: ``before`` the request is carried out, or ``after``: the write is done, its answer is lost.
            times: how many requests.
        """
        self._faults.inject(matches, error_for_status(failure) if isinstance(failure, int) else failure, when, times)

    def break_watches(self, resource: ApiResource | type[Object] | None = None) -> int:
        """Breaks the open watches of ``resource`` (None: all) as a lost connection does; returns how many."""
        if resource is None:
            return self._storage.break_subscriptions()
        api_resource = resource if isinstance(resource, ApiResource) else resource.api_resource
        return self._storage.break_subscriptions(self._collection_of(api_resource))

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
        self._garbage_collector.enqueue_all()
        self._controller_runner.run_sync(self._controller_runner.collect_garbage)

    async def collect_garbage_async(self) -> None:
        """``collect_garbage`` that waits for webhooks; where a request waits for some, that one goes on with it."""
        self._garbage_collector.enqueue_all()
        await self._controller_runner.run(self._controller_runner.collect_garbage)

    # Inside

    def _collection_of(self, resource: ApiResource) -> GroupResource:
        kind = self._kinds.find(*_gvr(resource))
        return GroupResource(resource.group, resource.plural) if kind is None else kind.collection

    def _after_write(self, stored: StoredObject) -> None:
        if stored.collection == DEFINITIONS:
            self._definition_controller.serve(stored)
        elif self._run_controllers:
            self._garbage_collector.on_write(stored)


def _admin_user() -> RequestUser:
    return ADMIN_USER


def _raise_for_status(response: HttpResponse) -> None:
    if response.status >= 400:
        raise error_from_status(msgspec.json.decode(response.body, type=ApiStatus))


def _injected_response(failure: InjectedFailure) -> HttpResponse:
    if isinstance(failure, ConnectionFailed):
        raise failure
    return error_response(failure)


def error_response(error: ApiError) -> HttpResponse:
    """``error`` as the real server sends it."""
    if error.status == failures.unknown_path().status:
        return HttpResponse(404, b"404 page not found\n")
    return HttpResponse(error.code, encode_status(error), error.retry_after)


def _gvr(resource: ApiResource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _to_manifest(source: JsonObject | Object) -> JsonObject:
    if not isinstance(source, Object):
        return source
    resource: Any = source.api_resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **to_builtins(source)}
