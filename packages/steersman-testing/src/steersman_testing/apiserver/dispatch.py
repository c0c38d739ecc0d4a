"""Which part of the server answers a request."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import User, attributes_of
from steersman_testing.apiserver.access.reviews import Reviews
from steersman_testing.apiserver.admission.webhooks import Attempt
from steersman_testing.apiserver.deletion import Deletion
from steersman_testing.apiserver.discovery.documents import discover, verbs_of
from steersman_testing.apiserver.listing import check_version, list_objects
from steersman_testing.apiserver.printing.tables import Tables
from steersman_testing.apiserver.requests.negotiation import negotiate
from steersman_testing.apiserver.requests.parameters import flag
from steersman_testing.apiserver.requests.routes import Route, find_route, no_status
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.subresources import Subresources
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.watching import Watch


def is_watch(request: HttpRequest) -> bool:
    """Whether ``request`` is to be answered by a stream of changes."""
    return request.method == "GET" and flag(request.query, "watch")


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Finds what a request is about, and has it answered."""

    verbs: Verbs
    deletion: Deletion
    subresources: Subresources
    reviews: Reviews

    def answer(self, request: HttpRequest, user: User) -> tuple[int, bytes]:
        """The answer's code and body for ``user``, who may ask it. Raises ApiError as the real server refuses."""
        verbs, storage = self.verbs, self.verbs.storage
        if request.method == "GET" and (found := discover(request.path, request.accept, verbs.kinds)) is not None:
            return 200, found
        if (review := self.reviews.answer(request, user)) is not None:
            asked = attributes_of(request)
            resource = ApiResource(asked.group, asked.version, "", asked.resource)
            verbs.admission.check_unasked(Attempt("CREATE", resource, "", asked.namespace, "", user))
            return 201, review
        route = find_route(request.path, verbs.kinds)
        if route.kind.deprecation:
            verbs.admission.warnings.append(route.kind.deprecation)
        if is_watch(request) and not route.name:
            # Errors of the query come before the stream; a healthy watch cannot be answered in one piece.
            Watch(storage, route, request, verbs.runtime, verbs.conversion)
            raise ValueError("a watch is opened with stream(), not with request()")
        if route.name and route.kind.resource.namespaced and not route.namespace:
            raise failures.unknown_path()
        if route.subresource and not (route.subresource == "status" and route.kind.has_status):
            if route.subresource == "status":
                raise no_status(verbs.kinds, route)
            return self.subresources.answer(route, request, user)
        match request.method, bool(route.name):
            case "GET", True:
                check_version(storage, request.query.get("resourceVersion", ""))
                return 200, self._encode(route, request, verbs.get(route))
            case "GET", False:
                return 200, list_objects(storage, route, request, verbs.conversion, verbs.runtime.clock.now())
            case "POST", False:
                return 201, self._encode(route, request, verbs.create(route, request, user))
            case "PUT", True:
                existed = storage.get(route.kind.collection, route.key) is not None
                return 200 if existed else 201, self._encode(route, request, verbs.update(route, request, user))
            case "PATCH", True:
                existed = storage.get(route.kind.collection, route.key) is not None
                return 200 if existed else 201, self._encode(route, request, verbs.patch(route, request, user))
            case "DELETE", True if not route.subresource:
                return self.deletion.delete(route, request, user)
            case "DELETE", False if "deletecollection" in verbs_of(route.kind) and route.is_bounded:
                return 200, self.deletion.delete_collection(route, request, user)
            case verb, _:
                named = {"POST": "create", "PUT": "update"}.get(verb, verb.lower())
                raise failures.method_not_allowed(route.kind.resource if route.kind.custom else None, named)

    def _encode(self, route: Route, request: HttpRequest, stored: Stored) -> bytes:
        form = negotiate(request)
        if form == "table":
            meta = {"resourceVersion": str(stored.version)}
            return Tables.of(route.kind, request).encode([stored], meta, self.verbs.runtime.clock.now())
        return stored.encoded(route.kind.resource.api_version, partial=form == "metadata")
