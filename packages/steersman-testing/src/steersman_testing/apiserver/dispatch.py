"""Dispatch of requests to their handlers."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import RequestUser, request_attributes
from steersman_testing.apiserver.admission.webhooks import AdmissionAttributes
from steersman_testing.apiserver.deletion import DeletionHandler
from steersman_testing.apiserver.discovery.documents import discover, supported_verbs
from steersman_testing.apiserver.lists import check_get_version, list_objects
from steersman_testing.apiserver.requests.negotiation import negotiate
from steersman_testing.apiserver.requests.parameters import bool_parameter
from steersman_testing.apiserver.requests.routes import Route, find_route, status_not_found
from steersman_testing.apiserver.reviews import Reviews
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.subresources import SubresourceHandler
from steersman_testing.apiserver.tables import table_encoder
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.watches import Watch


def is_watch(request: HttpRequest) -> bool:
    """Return True if ``request`` asks for a stream of watch events."""
    return request.method == "GET" and bool_parameter(request.query, "watch")


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Parses the route of a request and calls its handler."""

    verbs: Verbs
    deletion: DeletionHandler
    subresources: SubresourceHandler
    reviews: Reviews

    def handle(self, request: HttpRequest, user: RequestUser) -> tuple[int, bytes]:
        """Return status code and body of the response to an authorized request.

        Raises:
            ApiError: the server rejects the request.
        """
        verbs, storage = self.verbs, self.verbs.storage
        if request.method == "GET" and (found := discover(request.path, request.accept, verbs.kinds)) is not None:
            return 200, found
        if (review := self.reviews.respond(request, user)) is not None:
            attributes = request_attributes(request)
            resource = ApiResource(attributes.group, attributes.version, "", attributes.resource)
            verbs.admission.reject_if_webhooks_match(
                AdmissionAttributes("CREATE", resource, "", attributes.namespace, "", user)
            )
            return 201, review
        route = find_route(request.path, verbs.kinds)
        if route.kind.deprecation_warning:
            verbs.admission.warnings.append(route.kind.deprecation_warning)
        if is_watch(request) and not route.name:
            # Report errors of the query. A valid watch cannot be returned as one body.
            Watch(storage, route, request, verbs.runtime, verbs.converter)
            raise ValueError("a watch is opened with stream(), not with request()")
        if route.name and route.kind.resource.namespaced and not route.namespace:
            raise failures.unknown_path()
        if route.subresource and not (route.subresource == "status" and route.kind.has_status):
            if route.subresource == "status":
                raise status_not_found(verbs.kinds, route)
            return self.subresources.handle(route, request, user)
        match request.method, bool(route.name):
            case "GET", True:
                check_get_version(storage, request.query.get("resourceVersion", ""))
                return 200, self._encode(route, request, verbs.get(route))
            case "GET", False:
                return 200, list_objects(storage, route, request, verbs.converter, verbs.runtime.clock.now())
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
            case "DELETE", False if "deletecollection" in supported_verbs(route.kind) and route.is_single_scope:
                return 200, self.deletion.delete_collection(route, request, user)
            case verb, _:
                verb_name = {"POST": "create", "PUT": "update"}.get(verb, verb.lower())
                raise failures.method_not_allowed(route.kind.resource if route.kind.is_custom else None, verb_name)

    def _encode(self, route: Route, request: HttpRequest, stored: StoredObject) -> bytes:
        form = negotiate(request)
        if form == "table":
            meta = {"resourceVersion": str(stored.version)}
            return table_encoder(route.kind, request).encode([stored], meta, self.verbs.runtime.clock.now())
        return stored.to_json(route.kind.resource.api_version, partial=form == "metadata")
