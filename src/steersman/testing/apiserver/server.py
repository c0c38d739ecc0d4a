"""The in-memory API server: a transport without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec

from steersman.client.transport import HttpRequest, HttpResponse
from steersman.crd import definition
from steersman.errors import ApiError, ConnectionFailed, Status, error_from_status
from steersman.meta import ApiResource, Object, ObjectKey, Resource, decode, to_builtins
from steersman.observability.runtime import Runtime
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.bodies import decode_options
from steersman.testing.apiserver.collector import Collector
from steersman.testing.apiserver.crds import CRD, established_status, kinds_of
from steersman.testing.apiserver.discovery import discover
from steersman.testing.apiserver.faults import Failure, Faults, Moment, Predicate, failure_for
from steersman.testing.apiserver.kinds import GroupResource, KindRegistry, registered_kind
from steersman.testing.apiserver.listing import encode_list, list_objects, selection, wants_metadata
from steersman.testing.apiserver.reviews import Reviews
from steersman.testing.apiserver.routes import Route, find_route, unserved
from steersman.testing.apiserver.storage import Broken, Storage, Stored
from steersman.testing.apiserver.subresources import Subresources
from steersman.testing.apiserver.values import JsonObject
from steersman.testing.apiserver.verbs import FIRST_NAMESPACES, Verbs
from steersman.testing.apiserver.watching import Watch, encode_status
from steersman.testing.apiserver.writes import Writer

T = TypeVar("T", bound=Object)


class InMemoryApiServer:
    """A Kubernetes API server as a ``Transport``: hand it to a ``Client`` or a manager in place of a connection.

    See the package's text for what it imitates and what not.

    Args:
        runtime: clock and randomness, for timestamps, UIDs and generated names.
        controllers: whether dependents are collected, namespaces emptied and so on, right after each write. Off,
            it behaves as envtest does, where nobody runs the controller manager; ``collect_garbage`` does it once.

    Attributes:
        requests: all requests so far, refused ones included. Tests may clear it.
        reviews: what a TokenReview and a SubjectAccessReview are answered.
        logs: the lines of a pod's log, by its key; at first there are none.
    """

    def __init__(self, runtime: Runtime | None = None, *, controllers: bool = True) -> None:
        self._runtime = runtime or Runtime()
        self._controllers = controllers
        self._kinds = KindRegistry()
        self._storage = Storage()
        self._writer = Writer(self._storage, self._runtime, self._after_write)
        self._collector = Collector(self._storage, self._writer, self._kinds)
        self._verbs = Verbs(self._storage, self._kinds, self._writer, self._runtime)
        self._subresources = Subresources(self._verbs)
        self.reviews = Reviews(self._subresources.tokens)
        self.logs = self._subresources.logs
        self._faults = Faults()
        self.requests: list[HttpRequest] = []
        for name in FIRST_NAMESPACES:
            self.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # The transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request``. Raises ConnectionFailed where ``fail_next`` asked for it."""
        self.requests.append(request)
        before, after = self._faults.take(request)
        # Other tasks run while a request is on its way, and while its answer is.
        await asyncio.sleep(0)
        response = _failed(before) if before is not None else self.answer(request)
        if after is not None:
            response = _failed(after)
        await asyncio.sleep(0)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Opens a watch. Raises ApiError and ConnectionFailed as a connection does."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self.requests.append(request)
        before, after = self._faults.take(request)
        await asyncio.sleep(0)
        if failure := before or after:
            raise failure
        route = find_route(request.path, self._kinds)
        if route.subresource == "log":
            yield _each(self._subresources.log_lines(route, request.query))
            return
        if not _is_watch(request):
            raise failures.refused_here(f"streaming {request.path} without watch=true")
        watch = Watch(self._storage, route, request, self._runtime)
        async with aclosing(_unbroken(watch, request)) as lines:
            yield lines

    async def close(self) -> None:
        """Does nothing: there is no connection, and the server lives on for other clients."""

    # What tests do

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answers ``request`` at once, without faults and without recording it."""
        try:
            status, body = self._dispatch(request)
        except ApiError as error:
            return _refusal(error)
        if request.method != "GET" and self._controllers:
            self._collector.settle()
        return HttpResponse(status, body)

    def register(self, *kinds: ApiResource | type[Object]) -> None:
        """Serves more kinds. A custom resource type is served by the CRD that is generated from it, with validation.

        Raises:
            SchemaError: a custom resource type cannot be expressed as a CRD.
        """
        for kind in kinds:
            if isinstance(kind, ApiResource):
                self._kinds.add(registered_kind(kind))
            elif issubclass(kind, Resource):
                self.load(definition(cast("type[Resource[Any, Any]]", kind)))
            elif self._kinds.find(*_names(kind.api_resource)) is None:
                self._kinds.add(registered_kind(kind.api_resource))

    def load(self, *manifests: JsonObject | Object) -> None:
        """Creates objects at once, as an administrator would before a test begins.

        Raises:
            ApiError: the server refuses one.
            ValueError: a manifest's kind is not served.
        """
        for manifest in manifests:
            obj = _manifest(manifest)
            kind = self._kinds.named(obj.get("apiVersion", ""), obj.get("kind", ""))
            if kind is None:
                raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served: register it first")
            namespace = obj.get("metadata", {}).get("namespace", "")
            path = kind.resource.path(namespace=namespace)
            response = self.answer(HttpRequest(method="POST", path=path, body=msgspec.json.encode(obj)))
            if response.status >= 400:
                raise error_from_status(msgspec.json.decode(response.body, type=Status))

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object ``key`` as it is now, or None; no request is recorded."""
        stored = self._storage.get(_collection(kind.api_resource), key)
        return decode(stored.encoded(kind.api_resource.api_version), kind) if stored is not None else None

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) as they are now; no request is recorded."""
        version = kind.api_resource.api_version
        found = self._storage.list(_collection(kind.api_resource), namespace)
        return tuple(decode(s.encoded(version), kind) for s in found)

    def manifest(self, resource: ApiResource | type[Object], key: ObjectKey) -> JsonObject | None:
        """The object ``key`` in wire form, managedFields included, or None."""
        names = resource if isinstance(resource, ApiResource) else resource.api_resource
        stored = self._storage.get(_collection(names), key)
        return stored.rendered(names.api_version) if stored is not None else None

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
        return self._storage.break_subscriptions(_collection(names))

    def compact(self) -> None:
        """Forgets the history: watches from before, and pages of older lists, are refused with 410 from now on."""
        self._storage.compact()

    def collect_garbage(self) -> None:
        """Does what the garbage collector and the namespace controller would, objects that never had an owner too."""
        self._collector.sweep()

    # Inside

    def _dispatch(self, request: HttpRequest) -> tuple[int, bytes]:
        if request.method == "GET":
            described = discover(request.path, request.accept, self._kinds)
            if described is not None:
                return 200, described
        if (review := self.reviews.answer(request)) is not None:
            return 201, review
        route = find_route(request.path, self._kinds)
        if _is_watch(request):
            # Errors of the query come before the stream; a healthy watch cannot be answered in one piece.
            Watch(self._storage, route, request, self._runtime)
            raise ValueError("a watch is opened with stream(), not with request()")
        if route.name and route.kind.resource.namespaced and not route.namespace:
            raise failures.unknown_path()
        if route.subresource and not (route.subresource == "status" and route.kind.has_status):
            if route.subresource in ("status", "finalize"):
                raise unserved(self._kinds, route.kind.resource.group, route.kind.resource.version)
            return self._subresources.answer(route, request)
        match request.method, bool(route.name):
            case "GET", True:
                return 200, self._encode(route, request, self._verbs.get(route))
            case "GET", False:
                return 200, list_objects(self._storage, route, request)
            case "POST", False:
                return 201, self._encode(route, request, self._verbs.create(route, request))
            case "PUT", True:
                return 200, self._encode(route, request, self._verbs.update(route, request))
            case "PATCH", True:
                existed = self._storage.get(route.kind.collection, route.key) is not None
                return 200 if existed else 201, self._encode(route, request, self._verbs.patch(route, request))
            case "DELETE", True if not route.subresource:
                return self._verbs.delete(route, request)
            case "DELETE", False if route.namespace or not route.kind.resource.namespaced:
                return 200, self._delete_collection(route, request)
            case verb, _:
                named = {"POST": "create", "PUT": "update"}.get(verb, verb.lower())
                raise failures.method_not_allowed(route.kind.resource if route.kind.custom else None, named)

    def _encode(self, route: Route, request: HttpRequest, stored: Stored) -> bytes:
        return stored.encoded(route.kind.resource.api_version, partial=wants_metadata(request))

    def _delete_collection(self, route: Route, request: HttpRequest) -> bytes:
        options = decode_options(request)
        matches = selection(route, request.query)
        found = self._storage.list(route.kind.collection, route.namespace)
        chosen = [s for s in found if matches is None or matches(s.object)]
        for stored in chosen:
            self._verbs.remove(stored, {**request.query, **options})
        meta: JsonObject = {"resourceVersion": str(self._storage.version)}
        return encode_list(route.kind, chosen, meta, partial=wants_metadata(request, listed=True))

    def _after_write(self, stored: Stored) -> None:
        """Kinds come and change with their definitions, and a definition's status tells that it is served."""
        if stored.collection != _collection(CRD) or stored.is_deleting:
            return
        self._kinds.remove(GroupResource(stored.object["spec"]["group"], stored.object["spec"]["names"]["plural"]))
        for kind in kinds_of(stored.object):
            self._kinds.add(kind)
        status = established_status(stored.object, self._writer.timestamp())
        if status != stored.object.get("status"):
            self._writer.replace(stored, {**stored.object, "status": status}, stored.managers)


async def _unbroken(watch: Watch, request: HttpRequest) -> AsyncGenerator[bytes, None]:
    async with aclosing(watch.events()) as events:
        try:
            while True:
                async with asyncio.timeout(request.timeout):
                    line = await anext(events, None)
                if line is None:
                    return
                yield line
        except Broken:
            raise ConnectionFailed(f"{request.method} {request.path}: the watch was broken by the test") from None
        except TimeoutError:
            raise ConnectionFailed(f"{request.method} {request.path}: silent for {request.timeout} s") from None


def _is_watch(request: HttpRequest) -> bool:
    return request.method == "GET" and request.query.get("watch") in ("true", "1")


def _failed(failure: Failure) -> HttpResponse:
    if isinstance(failure, ConnectionFailed):
        raise failure
    return _refusal(failure)


def _refusal(error: ApiError) -> HttpResponse:
    if error.status == failures.unknown_path().status:
        return HttpResponse(404, b"404 page not found\n")
    return HttpResponse(error.code, encode_status(error), error.retry_after)


def _collection(resource: ApiResource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def _names(resource: ApiResource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _manifest(source: JsonObject | Object) -> JsonObject:
    if not isinstance(source, Object):
        return source
    resource: Any = source.api_resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **to_builtins(source)}


async def _each(lines: Iterable[str]) -> AsyncGenerator[bytes, None]:
    for line in lines:
        yield line.encode()
