"""In-memory API server: a ``Transport`` without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import structs

from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ApiError, ConnectionFailed
from steersman.meta import ApiResource, Object, ObjectKey, to_builtins
from steersman.meta.custom_resource import is_decorated
from steersman.observability.runtime import Runtime
from steersman_manifests.crd import definitions
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
from steersman_testing.apiserver.inspection import StorageInspection, gvr_of
from steersman_testing.apiserver.kinds import DEFINITIONS, KindRegistry, schemaless_kind
from steersman_testing.apiserver.requests.media import APPLY
from steersman_testing.apiserver.requests.routes import find_route
from steersman_testing.apiserver.responses import error_response as error_response
from steersman_testing.apiserver.responses import raise_for_status
from steersman_testing.apiserver.reviews import Reviews
from steersman_testing.apiserver.storage import Storage, StorageEvent, StoredObject
from steersman_testing.apiserver.subresources import SubresourceHandler
from steersman_testing.apiserver.transports import AuthenticatedTransport, encode_lines, watch_lines
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.watches import Watch
from steersman_testing.apiserver.webhook_calls import WebhookCaller, WebhookHandler
from steersman_testing.apiserver.writes import StorageWriter

T = TypeVar("T", bound=Object)
# Kinds are the same in all tests, but each test has its own server.
_cached_definitions = lru_cache(maxsize=128)(definitions)


class Impersonation(Protocol):
    """User that the sender of a request impersonates: see ``kubectl.impersonation``."""

    def authorize(self, authorizer: Authorizer, requester: RequestUser) -> RequestUser: ...


class InMemoryApiServer(StorageInspection):
    """Kubernetes API server in memory, which is a ``Transport``.

    Pass it to a ``Client`` or a manager in place of a connection. The package docstring describes its scope.

    Args:
        runtime: clock and randomness, for timestamps, UIDs and generated names.
        controllers: whether the garbage collector, the namespace controller and the other controllers run after each
            write. Defaults to True. Without them the server behaves like envtest, which has no controller manager,
            and ``collect_garbage`` runs them once.
        service_addresses: the cluster IP range of Services in CIDR notation. Defaults to the range of envtest, which
            leaves 253 addresses besides that of the Service ``kubernetes``.

    Raises:
        ValueError: ``service_addresses`` is not a CIDR range.

    Attributes:
        requests: all requests so far, rejected ones included. Tests may clear it.
        reviews: users and decisions for TokenReviews and SubjectAccessReviews.
        rbac_denials: messages of the requests that RBAC denied. Tests may clear it.
        pod_logs: log lines by the key of the pod. Empty at first.
    """

    def __init__(
        self, runtime: Runtime | None = None, *, controllers: bool = True, service_addresses: str = "10.0.0.0/24"
    ) -> None:
        self._webhook_caller = WebhookCaller(runtime or Runtime())
        self._runtime = self._webhook_caller.runtime
        self._run_controllers = controllers
        super().__init__(Storage(), KindRegistry(), VersionConverter(self._webhook_caller))
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

    # Transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Handle ``request`` as the administrator.

        Raises:
            ConnectionFailed: ``fail_next`` injected it.
        """
        return await self._request_as(request, _admin_user)

    async def request_with_events(self, request: HttpRequest) -> tuple[HttpResponse, tuple[StorageEvent, ...]]:
        """Handle ``request`` and return its response and its own changes.

        Changes of concurrent requests are not included.
        """
        events: list[StorageEvent] = []

        def record_events(part: Callable[[], R]) -> R:
            # Record each section, because other requests run while a webhook is called.
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
        # Yield to other tasks, as a network does before and after the request.
        await asyncio.sleep(0)
        if failure_before is not None:
            response = _injected_response(failure_before)
        else:
            response = await self._webhook_caller.run(lambda: runner(lambda: self._handle(request, identify)))
            if request.method != "GET":
                # A rejected deletecollection may have deleted some objects.
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
        """Open a watch.

        Raises:
            ApiError: the server rejects the watch before it responds with 200.
            ConnectionFailed: ``fail_next`` injected it.
        """
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
        """Clock and randomness, for managers that use this server."""
        return self._runtime

    async def close(self) -> None:
        """Do nothing. There is no connection, and other clients may use the server."""

    # Users and webhooks

    def as_user(
        self, name: str, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None
    ) -> Transport:
        """Return a transport that is authenticated as the user ``name``.

        RBAC decides about its requests. The user has the same groups as an impersonated user:
        ``system:authenticated``, and for a service account ``system:serviceaccount:NAMESPACE:NAME`` the groups of
        service accounts.

        Args:
            groups: further groups of the user. Members of ``system:masters`` are administrators.
            extra: extra attributes of the user, which webhooks receive.
        """
        extra_values = {k: tuple(v) for k, v in (extra or {}).items()}
        return self.as_identity(impersonated_user(name, tuple(groups), extra_values))

    def as_identity(self, user: RequestUser) -> Transport:
        """Return a transport that is authenticated as ``user``."""
        return self._transport_for(lambda: user)

    def as_bearer(self, token: str, impersonate: Impersonation | None = None) -> Transport:
        """Return a transport that sends the bearer token ``token``.

        Requests fail with 401 while ``authenticate`` does not accept the token.

        Args:
            impersonate: the user that the requests impersonate. They fail with 403 unless RBAC allows it.
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
        """Return the user of a bearer token, or None.

        Valid tokens come from TokenRequests and from ``reviews.users``.
        """
        return self._token_authenticator.authenticate(token)

    def grant(self, user: str, *roles: RoleOrManifest, namespace: str = "") -> None:
        """Bind roles to ``user``, in addition to those it has.

        A test can prove that the generated permissions of an operator suffice: the operator runs ``as_user`` with
        ``grant(user, cluster_role("operator", manager.permissions))`` only, and ``rbac_denials`` stays empty.

        Args:
            user: such as ``jane`` or ``system:serviceaccount:shop:orders``.
            roles: names of existing ClusterRoles, such as ``view``, or manifests of ClusterRoles and Roles. Manifests
                are applied and replace roles of the same name.
            namespace: namespace of the bindings to ClusterRoles and of Roles without a namespace. Empty for all
                namespaces.

        Raises:
            ValueError: a manifest is not a role, or a Role has no namespace.
            ApiError: the server rejects a role.
        """
        for role in roles:
            for manifest in role_manifests(user, role, namespace):
                self._apply(manifest)

    def serve_webhook(self, target: str, handler: WebhookHandler) -> None:
        """Register ``handler`` for the webhook at ``target``.

        Args:
            target: the URL of the webhook's ``clientConfig``. For a Service, its URL within the cluster:
                ``https://NAME.NAMESPACE.svc:443/PATH``.
            handler: receives an AdmissionReview or ConversionReview with ``request`` in wire form and returns one
                with ``response``. ConnectionFailed marks the webhook as unreachable. Other exceptions abort the
                request that called the webhook.
        """
        self._webhook_caller.register_handler(target, handler)

    # Control by tests

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Handle ``request`` synchronously, without faults and without a record.

        If controllers need a webhook call that would block, they run after the next write by ``request``.

        Raises:
            RuntimeError: the request needs a webhook call that would block.
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
        """Serve further kinds.

        A custom resource type is served by the CRD that is generated from it, with validation.

        Raises:
            SchemaError: a custom resource type cannot be expressed as a CRD.
        """
        custom: list[Any] = [k for k in kinds if not isinstance(k, ApiResource) and is_decorated(k)]
        self.load(*_cached_definitions(*custom))
        for kind in kinds:
            if isinstance(kind, ApiResource):
                self._kinds.add(schemaless_kind(kind))
            elif kind not in custom and self._kinds.find(*gvr_of(kind.api_resource)) is None:
                self._kinds.add(schemaless_kind(kind.api_resource))

    def load(self, *manifests: JsonObject | Object) -> None:
        """Create objects synchronously as the administrator, before a test begins.

        Objects without a namespace go to ``default``, as with kubectl.

        Raises:
            ApiError: the server rejects an object.
            ValueError: the kind of a manifest is not served.
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
        raise_for_status(
            self.handle(HttpRequest(method="POST", path=path, query=query, body=msgspec.json.encode(obj)))
        )

    def _apply(self, manifest: JsonObject) -> None:
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
        raise_for_status(self.handle(request))

    @property
    def writes(self) -> list[HttpRequest]:
        """Recorded requests other than GET."""
        return [r for r in self.requests if r.method != "GET"]

    def fail_next(
        self,
        matches: RequestMatcher,
        failure: InjectedFailure | int,
        *,
        when: FaultTiming = "before",
        times: int = 1,
    ) -> None:
        """Inject a failure into the next matching requests.

        Args:
            matches: predicate for requests, such as ``matching("PUT", "/configmaps/")``.
            failure: an ``ApiError``, an HTTP status code, or ``ConnectionFailed``.
            when: ``before`` fails the request without executing it. ``after`` executes it and loses the response.
            times: number of requests to fail.
        """
        self._faults.inject(matches, error_for_status(failure) if isinstance(failure, int) else failure, when, times)

    def collect_garbage(self) -> None:
        """Run the garbage collector and the namespace controller once.

        Dependents of owners that never existed are collected as well.

        Raises:
            RuntimeError: a webhook call would block. Call ``collect_garbage_async`` instead.
            ApiError: 501, a webhook call is not implemented here.
        """
        self._garbage_collector.enqueue_all()
        self._controller_runner.run_sync(self._controller_runner.collect_garbage)

    async def collect_garbage_async(self) -> None:
        """Run ``collect_garbage`` and wait for webhooks.

        If a request already waits for a webhook in its controllers, that request continues with the work.
        """
        self._garbage_collector.enqueue_all()
        await self._controller_runner.run(self._controller_runner.collect_garbage)

    # Internals

    def _after_write(self, stored: StoredObject) -> None:
        if stored.collection == DEFINITIONS:
            self._definition_controller.serve(stored)
        elif self._run_controllers:
            self._garbage_collector.on_write(stored)


def _admin_user() -> RequestUser:
    return ADMIN_USER


def _injected_response(failure: InjectedFailure) -> HttpResponse:
    if isinstance(failure, ConnectionFailed):
        raise failure
    return error_response(failure)


def _to_manifest(source: JsonObject | Object) -> JsonObject:
    if not isinstance(source, Object):
        return source
    resource: Any = source.api_resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **to_builtins(source)}
