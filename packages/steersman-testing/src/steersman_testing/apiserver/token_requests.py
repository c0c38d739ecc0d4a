"""The subresource token of service accounts: tokens, for whom they are, and what they die with.

Source: ``pkg/registry/core/serviceaccount/storage/token.go``, ``pkg/apis/authentication/validation`` of Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import User
from steersman_testing.apiserver.access.tokens import AUDIENCE, Tokens
from steersman_testing.apiserver.failures import FieldError, invalid_value
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import GroupResource, Kind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.values import JsonObject, list_at, map_at
from steersman_testing.apiserver.verbs import Verbs, attempt_of

_TOKEN_REQUEST = Kind(
    resource=ApiResource("authentication.k8s.io", "v1", "TokenRequest", "token"),
    shape=BuiltinShape(("TokenRequest",)),
)
_SHORTEST = 600
_LONGEST = 2**32
_BOUND = {
    "Pod": ApiResource("", "v1", "Pod", "pods"),
    "Secret": ApiResource("", "v1", "Secret", "secrets"),
    "Node": ApiResource("", "v1", "Node", "nodes", False),
}


@dataclass(frozen=True, slots=True)
class TokenRequests:
    """Gives out tokens."""

    verbs: Verbs
    tokens: Tokens

    def create(self, route: Route, request: HttpRequest, user: User) -> bytes:
        """A new token for the service account of ``route``, as JSON.

        Raises:
            ApiError: the real server would refuse; 501, a webhook would have to be asked.
        """
        options = WriteOptions.of(request, user)
        sent = self.verbs.incoming.sent(_TOKEN_REQUEST, request, options, name="", namespace=route.namespace)
        account = self.verbs.get(route)
        self.verbs.admission.check_unasked(attempt_of(route, "CREATE", options, route.name))
        spec = map_at(sent, "spec")
        seconds = 3600 if spec.get("expirationSeconds") is None else spec["expirationSeconds"]
        _check(sent, route.name, seconds)
        bound = spec.get("boundObjectRef")
        target = None if bound is None else self._target(bound, account)
        audiences: list[str] = list_at(spec, "audiences") or [AUDIENCE]
        runtime = self.verbs.runtime
        expires = runtime.clock.now() + timedelta(seconds=seconds)
        token = self.tokens.issue(account, tuple(audiences), expires, runtime.random.getrandbits(128), target)
        meta = account.object["metadata"]
        names = ("name", "namespace", "uid", "creationTimestamp")
        labels = {n: sent["metadata"][n] for n in ("labels", "annotations") if sent["metadata"].get(n)}
        answer = {
            "kind": _TOKEN_REQUEST.resource.kind,
            "apiVersion": _TOKEN_REQUEST.resource.api_version,
            "metadata": {**{n: meta[n] for n in names}, **labels},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": self.verbs.writer.timestamp(seconds)},
        }
        return msgspec.json.encode(answer)

    def _target(self, bound: JsonObject, account: Stored) -> Stored:
        """The object that the token shall die with."""
        kind, version, name = (bound.get(n) or "" for n in ("kind", "apiVersion", "name"))
        group, _, number = version.rpartition("/")
        resource = _BOUND.get(kind)
        if resource is None or group:
            raise failures.bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind}")
        if not name:
            raise failures.bad_request("Name parameter required.")
        place = ObjectKey(account.key.namespace if resource.namespaced else "", name)
        found = self.verbs.storage.get(GroupResource(resource.group, resource.plural), place)
        if found is None:
            raise failures.not_found(resource, name)
        user = map_at(found.object, "spec").get("serviceAccountName") or ""
        if kind == "Pod" and user != account.key.name:
            raise failures.bad_request(
                f'cannot bind token for serviceaccount "{account.key.name}" to pod running with different '
                "serviceaccount name."
            )
        if (uid := bound.get("uid")) and uid != found.uid:
            raise failures.unbound(resource, name, uid)
        return found


def _check(sent: JsonObject, account: str, seconds: int) -> None:
    errors = list(_errors(seconds))
    if errors:
        raise failures.invalid(_TOKEN_REQUEST.resource, "", errors)
    name = sent["metadata"].get("name")
    if name and name != account:
        error = invalid_value("metadata.name", name, "must match the service account name if specified")
        raise failures.invalid(_TOKEN_REQUEST.resource, account, [error])


def _errors(seconds: int) -> Iterator[FieldError]:
    path = "spec.expirationSeconds"
    if seconds < _SHORTEST:
        yield invalid_value(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds")
