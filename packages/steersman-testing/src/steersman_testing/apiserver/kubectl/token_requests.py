"""TokenRequests: the subresource token of service accounts.

Source: ``pkg/registry/core/serviceaccount/storage/token.go``, ``pkg/apis/authentication/validation`` of Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.access.tokens import DEFAULT_AUDIENCE, TokenAuthenticator
from steersman_testing.apiserver.admission.attributes import admission_attributes
from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.kinds import GroupResource, ServedKind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_array, get_object
from steersman_testing.apiserver.verbs import Verbs

_TOKEN_REQUEST = ServedKind(
    resource=ApiResource("authentication.k8s.io", "v1", "TokenRequest", "token"),
    shape=BuiltinShape(("TokenRequest",)),
)
_MIN_EXPIRATION_SECONDS = 600
_MAX_EXPIRATION_SECONDS = 2**32
_BINDABLE_KINDS = {
    "Pod": ApiResource("", "v1", "Pod", "pods"),
    "Secret": ApiResource("", "v1", "Secret", "secrets"),
    "Node": ApiResource("", "v1", "Node", "nodes", False),
}


def create_token(
    verbs: Verbs, authenticator: TokenAuthenticator, route: Route, request: HttpRequest, user: RequestUser
) -> bytes:
    """Issue a token and return the TokenRequest as JSON.

    Raises:
        ApiError: the TokenRequest is invalid; 501, an admission webhook matches.
    """
    options = WriteOptions.of(request, user)
    token_request = verbs.body_decoder.decode(_TOKEN_REQUEST, request, options, name="", namespace=route.namespace)
    service_account = verbs.get(route)
    verbs.admission.reject_if_webhooks_match(admission_attributes(route, "CREATE", options, route.name))
    spec = get_object(token_request, "spec")
    seconds = 3600 if spec.get("expirationSeconds") is None else spec["expirationSeconds"]
    _validate(token_request, route.name, seconds)
    bound_reference = spec.get("boundObjectRef")
    target = None if bound_reference is None else _bound_object(verbs.storage, bound_reference, service_account)
    audiences: list[str] = get_array(spec, "audiences") or [DEFAULT_AUDIENCE]
    runtime = verbs.runtime
    expires_at = runtime.clock.now() + timedelta(seconds=seconds)
    token = authenticator.issue(
        service_account, tuple(audiences), expires_at, runtime.random.getrandbits(128), target
    )
    meta = service_account.object["metadata"]
    names = ("name", "namespace", "uid", "creationTimestamp")
    sent_metadata = {
        n: token_request["metadata"][n] for n in ("labels", "annotations") if token_request["metadata"].get(n)
    }
    response = {
        "kind": _TOKEN_REQUEST.resource.kind,
        "apiVersion": _TOKEN_REQUEST.resource.api_version,
        "metadata": {**{n: meta[n] for n in names}, **sent_metadata},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound_reference},
        "status": {"token": token, "expirationTimestamp": verbs.writer.timestamp(seconds)},
    }
    return msgspec.json.encode(response)


def _bound_object(storage: Storage, reference: JsonObject, service_account: StoredObject) -> StoredObject:
    """Return the object that the token is bound to."""
    kind, version, name = (reference.get(n) or "" for n in ("kind", "apiVersion", "name"))
    group, _, number = version.rpartition("/")
    resource = _BINDABLE_KINDS.get(kind)
    if resource is None or group:
        raise failures.bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind}")
    if not name:
        raise failures.bad_request("Name parameter required.")
    key = ObjectKey(service_account.key.namespace if resource.namespaced else "", name)
    found = storage.get(GroupResource(resource.group, resource.plural), key)
    if found is None:
        raise failures.not_found(resource, name)
    user = get_object(found.object, "spec").get("serviceAccountName") or ""
    if kind == "Pod" and user != service_account.key.name:
        raise failures.bad_request(
            f'cannot bind token for serviceaccount "{service_account.key.name}" to pod running with different '
            "serviceaccount name."
        )
    if (uid := reference.get("uid")) and uid != found.uid:
        raise failures.token_binding_conflict(resource, name, uid)
    return found


def _validate(token_request: JsonObject, service_account: str, seconds: int) -> None:
    errors = list(_expiration_errors(seconds))
    if errors:
        raise failures.invalid(_TOKEN_REQUEST.resource, "", errors)
    name = token_request["metadata"].get("name")
    if name and name != service_account:
        error = invalid_value("metadata.name", name, "must match the service account name if specified")
        raise failures.invalid(_TOKEN_REQUEST.resource, service_account, [error])


def _expiration_errors(seconds: int) -> Iterator[InvalidFieldError]:
    path = "spec.expirationSeconds"
    if seconds < _MIN_EXPIRATION_SECONDS:
        yield invalid_value(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MAX_EXPIRATION_SECONDS:
        yield invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds")
