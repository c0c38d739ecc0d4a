"""Subresources other than status: scale, eviction, finalize, token, log and resize.

Source: ``pkg/registry/core/pod/storage/eviction.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError, StatusCause
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import AuthorizationAttributes, RequestUser
from steersman_testing.apiserver.access.tokens import TokenAuthenticator
from steersman_testing.apiserver.admission.attributes import admission_attributes
from steersman_testing.apiserver.admission.webhooks import AdmissionObjects
from steersman_testing.apiserver.deletion import DeletionHandler
from steersman_testing.apiserver.extensions import load_kubectl
from steersman_testing.apiserver.kinds import GroupResource, ServedKind
from steersman_testing.apiserver.logs import PodLogs
from steersman_testing.apiserver.options import WriteOptions, validate_delete_options
from steersman_testing.apiserver.requests.routes import Route, status_not_found
from steersman_testing.apiserver.requests.selectors import label_matcher, label_selector_text
from steersman_testing.apiserver.scales import ScaleHandler
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import JsonObject, clone, ensure_map, get_array, get_object
from steersman_testing.apiserver.verbs import Verbs

_EVICTION = ServedKind(
    resource=ApiResource("policy", "v1", "Eviction", "eviction"), shape=BuiltinShape(("Eviction",))
)
_POD_DISRUPTION_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_DISRUPTION_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_UNPROTECTED_PHASES = ("Pending", "Succeeded", "Failed")


class TokenSupport(Protocol):
    """Functions of the package ``kubectl`` for TokenRequests."""

    def create_token(
        self, verbs: Verbs, authenticator: TokenAuthenticator, route: Route, request: HttpRequest, user: RequestUser
    ) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SubresourceHandler:
    """Handles requests for subresources other than status.

    Attributes:
        token_authenticator: the issued tokens.
        pod_logs: the logs of pods, which tests write.
    """

    verbs: Verbs
    deletion_handler: DeletionHandler
    token_authenticator: TokenAuthenticator
    pod_logs: PodLogs = field(default_factory=PodLogs)

    def handle(self, route: Route, request: HttpRequest, user: RequestUser) -> tuple[int, bytes]:
        """Return status code and body of the response.

        Raises:
            ApiError: the request is invalid, or the subresource is not implemented.
        """
        operation = self._find_operation(route, request, user)
        if operation is None:
            raise self._unsupported_error(route, request.method, user)
        return operation()

    def stream(self, route: Route, request: HttpRequest, user: RequestUser) -> list[str]:
        """Return the lines of a pod log.

        No other subresource has a stream.

        Raises:
            ApiError: as ``handle``.
        """
        if (route.subresource, route.kind.resource.plural, request.method) == ("log", "pods", "GET"):
            return self._log_lines(route, request.query) or []
        if route.subresource == "status" and not route.kind.has_status:
            raise status_not_found(self.verbs.kinds, route)
        if route.subresource == "status" or self._find_operation(route, request, user) is not None:
            raise failures.not_implemented(f"streaming {request.path}")
        raise self._unsupported_error(route, request.method, user)

    def _find_operation(
        self, route: Route, request: HttpRequest, user: RequestUser
    ) -> Callable[[], tuple[int, bytes]] | None:
        """Return the operation for a request, or None."""
        match route.subresource, route.kind.resource.plural, request.method:
            case "scale", _, "GET" if route.kind.scale is not None:
                return lambda: (200, ScaleHandler(self.verbs).read(route))
            case "scale", _, ("PUT" | "PATCH") if route.kind.scale is not None:
                return lambda: (200, ScaleHandler(self.verbs).write(route, request, user))
            case "eviction", "pods", "POST":
                return lambda: (201, self._evict(route, request, user))
            case "token", "serviceaccounts", "POST":
                return lambda: (201, self._create_token(route, request, user))
            case "finalize", "namespaces", "PUT":
                version = route.kind.resource.api_version
                return lambda: (200, self.verbs.update(route, request, user).to_json(version))
            case "log", "pods", "GET":
                return lambda: self._log_response(route, request.query)
            case "resize", "pods", "GET":
                return lambda: (200, self.verbs.get(route).to_json(route.kind.resource.api_version))
            case "resize", "pods", "PUT":
                return lambda: (200, self.verbs.update(route, request, user).to_json(route.kind.resource.api_version))
            case "resize", "pods", "PATCH":
                return lambda: (200, self.verbs.patch(route, request, user).to_json(route.kind.resource.api_version))
            case _:
                return None

    def _unsupported_error(self, route: Route, method: str, user: RequestUser) -> ApiError:
        """Return the error for a request without an operation."""
        match route.subresource, route.kind.resource.plural, method:
            case ("exec" | "attach" | "portforward") as streamed, "pods", "GET":
                self._check_create_allowed(route, user)
                return failures.not_implemented(f"the subresource pods/{streamed}")
            case ("scale", _, _) if route.kind.scale is not None:
                verb = {"POST": "create"}.get(method, method.lower())
                return failures.method_not_allowed(route.kind.resource if route.kind.is_custom else None, verb)
            case (
                ("eviction" | "log" | "resize", "pods", _)
                | ("token", "serviceaccounts", _)
                | ("finalize", "namespaces", _)
            ):
                return failures.method_not_allowed()
            case "scale", _, _:
                return _scale_not_found(route)
            case other, plural, _:
                return failures.not_implemented(f"the subresource {plural}/{other}")

    def _log_response(self, route: Route, query: Mapping[str, str]) -> tuple[int, bytes]:
        lines = self._log_lines(route, query)
        return (204, b"") if lines is None else (200, "".join(f"{line}\n" for line in lines).encode())

    def _log_lines(self, route: Route, query: Mapping[str, str]) -> list[str] | None:
        """Return the selected lines of a pod log, or None."""
        return self.pod_logs.select_lines(route, self.verbs.get(route), query)

    def _check_create_allowed(self, route: Route, user: RequestUser) -> None:
        """Check the verb create, which WebSocket streams need as well."""
        if not self.verbs.authorizer.decide(user, AuthorizationAttributes.of("create", route)).allowed:
            raise self.verbs.authorizer.record_denial(failures.forbidden(route.kind.resource, route.name, ""))

    def _create_token(self, route: Route, request: HttpRequest, user: RequestUser) -> bytes:
        support: TokenSupport = load_kubectl()
        return support.create_token(self.verbs, self.token_authenticator, route, request, user)

    # Eviction

    def _evict(self, route: Route, request: HttpRequest, user: RequestUser) -> bytes:
        write_options = WriteOptions.of(request, user)
        eviction = self.verbs.body_decoder.decode(
            _EVICTION, _as_policy_v1(request), write_options, name="", namespace=route.namespace
        )
        attributes = admission_attributes(route, "CREATE", write_options, route.name, _EVICTION.resource)
        body = self.verbs.admission.mutate(attributes, AdmissionObjects(eviction, None), clone)
        if body["metadata"].get("name") != route.name:
            raise failures.bad_request("name in URL does not match name in Eviction object")
        dry_run = _is_dry_run(get_object(body, "deleteOptions"), write_options)
        self.verbs.admission.validate(attributes, AdmissionObjects(body, None))
        pod = self.verbs.get(route)
        phase = get_object(pod.object, "status").get("phase")
        if phase not in _UNPROTECTED_PHASES and not pod.is_deleting:
            self._consume_budget(pod, dry_run=dry_run)
        options = {**get_object(body, "deleteOptions"), **({"dryRun": ["All"]} if write_options.dry_run else {})}
        self.deletion_handler.check_preconditions(route.kind.resource, pod, options)
        if not dry_run:
            pod = self._set_disruption_target(pod)
        self.deletion_handler.remove(pod, validate_delete_options(options))
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )

    def _set_disruption_target(self, pod: StoredObject) -> StoredObject:
        """Set the condition DisruptionTarget."""
        updated: JsonObject = clone(pod.object)
        status = ensure_map(updated, "status")
        others = [c for c in get_array(status, "conditions") if c.get("type") != _DISRUPTION_TARGET["type"]]
        status["conditions"] = [*others, {**_DISRUPTION_TARGET, "lastTransitionTime": self.verbs.writer.timestamp()}]
        return self.verbs.writer.replace(pod, updated, pod.managers)

    def _consume_budget(self, pod: StoredObject, *, dry_run: bool) -> None:
        budgets = [
            b for b in self.verbs.storage.list(_POD_DISRUPTION_BUDGETS, pod.key.namespace) if _budget_selects(b, pod)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            raise failures.unclassified_error(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        (budget,) = budgets
        status = get_object(budget.object, "status")
        if not _is_ready(pod) and _allows_unhealthy_eviction(budget.object, status):
            return
        _check_budget(budget, status)
        if dry_run:
            return
        updated: JsonObject = clone(budget.object)
        updated_status = ensure_map(updated, "status")
        updated_status["disruptionsAllowed"] -= 1
        ensure_map(updated_status, "disruptedPods")[pod.key.name] = self.verbs.writer.timestamp()
        self.verbs.writer.replace(budget, updated, budget.managers)


def _as_policy_v1(request: HttpRequest) -> HttpRequest:
    """Return the request with ``policy/v1``.

    Evictions of ``policy/v1beta1`` are identical.
    """
    body = request.body or b""
    if b"policy/v1beta1" not in body:
        return request
    return msgspec.structs.replace(request, body=body.replace(b'"policy/v1beta1"', b'"policy/v1"', 1))


def _is_dry_run(options: JsonObject, write_options: WriteOptions) -> bool:
    """Return True if the query or the body requests a dry run.

    Raises:
        ApiError: 400, both are set and differ.
    """
    body_dry_run: list[str] = options.get("dryRun") or []
    if body_dry_run and write_options.dry_run and body_dry_run != ["All"]:
        formatted = " ".join(body_dry_run)
        text = f"Non-matching dry-run options in request and content: [All] and [{formatted}]"
        raise failures.bad_request(text)
    return write_options.dry_run or bool(body_dry_run)


def _scale_not_found(route: Route) -> ApiError:
    if route.kind.is_custom:
        return failures.not_found(route.kind.resource, route.name)
    return failures.unknown_resource()


def _budget_selects(budget: StoredObject, pod: StoredObject) -> bool:
    selector = get_object(budget.object, "spec").get("selector")
    if selector is None:
        return False
    matches = label_matcher(label_selector_text(selector))
    return matches is None or matches(pod.object)


def _is_ready(pod: StoredObject) -> bool:
    conditions = get_array(get_object(pod.object, "status"), "conditions")
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _allows_unhealthy_eviction(budget: JsonObject, status: JsonObject) -> bool:
    if get_object(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired: int = status.get("desiredHealthy", 0)
    return desired > 0 and status.get("currentHealthy", 0) >= desired


def _check_budget(budget: StoredObject, status: JsonObject) -> None:
    name = budget.key.name
    if status.get("observedGeneration", 0) < budget.object["metadata"].get("generation", 1):
        text = f"The disruption budget {name} is still being processed by the server."
        raise failures.eviction_blocked(StatusCause(message=text, reason="DisruptionBudget"), retry_after=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {name} does not allow evicting pods currently"
        if current <= desired:
            text = f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        raise failures.eviction_blocked(StatusCause(message=text, reason="DisruptionBudget"))
