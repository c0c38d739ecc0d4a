"""Scale, eviction, finalize, token and log: what lies below an object's path beside its status.

Source: ``pkg/registry/core/pod/storage/eviction.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError, StatusCause
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import Attributes, User
from steersman_testing.apiserver.access.tokens import Tokens
from steersman_testing.apiserver.admission.webhooks import Change
from steersman_testing.apiserver.deletion import Deletion
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import GroupResource, Kind
from steersman_testing.apiserver.logs import Logs
from steersman_testing.apiserver.options import WriteOptions, checked_deletion
from steersman_testing.apiserver.requests.routes import Route, no_status
from steersman_testing.apiserver.requests.selectors import label_matcher, selector_text
from steersman_testing.apiserver.scales import Scales
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.token_requests import TokenRequests
from steersman_testing.apiserver.values import JsonObject, clone, list_at, map_at, section
from steersman_testing.apiserver.verbs import Verbs, attempt_of

_EVICTION = Kind(resource=ApiResource("policy", "v1", "Eviction", "eviction"), shape=BuiltinShape(("Eviction",)))
_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_MARK = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_STARTED = ("Pending", "Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Subresources:
    """Answers requests to subresources other than status.

    Attributes:
        tokens: those that were given out.
        logs: of pods, which tests write.
    """

    verbs: Verbs
    deletion: Deletion
    tokens: Tokens
    logs: Logs = field(default_factory=Logs)

    def answer(self, route: Route, request: HttpRequest, user: User) -> tuple[int, bytes]:
        """The answer's code and body for ``user``.

        Raises:
            ApiError: the real server would refuse, or this one does not imitate it.
        """
        answer = self._answer(route, request, user)
        if answer is None:
            raise self._refusal(route, request.method, user)
        return answer()

    def stream(self, route: Route, request: HttpRequest, user: User) -> list[str]:
        """The lines of a log, which is all that comes in lines. Changes nothing, and raises as ``answer``."""
        if (route.subresource, route.kind.resource.plural, request.method) == ("log", "pods", "GET"):
            return self._log_lines(route, request.query) or []
        if route.subresource == "status" and not route.kind.has_status:
            raise no_status(self.verbs.kinds, route)
        if route.subresource == "status" or self._answer(route, request, user) is not None:
            raise failures.refused_here(f"streaming {request.path}")
        raise self._refusal(route, request.method, user)

    def _answer(self, route: Route, request: HttpRequest, user: User) -> Callable[[], tuple[int, bytes]] | None:
        """What answers a request; None where nothing does."""
        match route.subresource, route.kind.resource.plural, request.method:
            case "scale", _, "GET" if route.kind.scale is not None:
                return lambda: (200, Scales(self.verbs).read(route))
            case "scale", _, ("PUT" | "PATCH") if route.kind.scale is not None:
                return lambda: (200, Scales(self.verbs).write(route, request, user))
            case "eviction", "pods", "POST":
                return lambda: (201, self._evict(route, request, user))
            case "token", "serviceaccounts", "POST":
                return lambda: (201, TokenRequests(self.verbs, self.tokens).create(route, request, user))
            case "finalize", "namespaces", "PUT":
                version = route.kind.resource.api_version
                return lambda: (200, self.verbs.update(route, request, user).encoded(version))
            case "log", "pods", "GET":
                return lambda: self._log(route, request.query)
            case _:
                return None

    def _refusal(self, route: Route, method: str, user: User) -> ApiError:
        """Why ``method`` on a subresource cannot be answered."""
        match route.subresource, route.kind.resource.plural, method:
            case ("exec" | "attach" | "portforward") as streamed, "pods", "GET":
                self._check_streaming(route, user)
                return failures.refused_here(f"the subresource pods/{streamed}")
            case ("scale", _, _) if route.kind.scale is not None:
                verb = {"POST": "create"}.get(method, method.lower())
                return failures.method_not_allowed(route.kind.resource if route.kind.custom else None, verb)
            case ("eviction" | "log", "pods", _) | ("token", "serviceaccounts", _) | ("finalize", "namespaces", _):
                return failures.method_not_allowed()
            case "scale", _, _:
                return _no_scale(route)
            case other, plural, _:
                return failures.refused_here(f"the subresource {plural}/{other}")

    def _log(self, route: Route, query: Mapping[str, str]) -> tuple[int, bytes]:
        lines = self._log_lines(route, query)
        return (204, b"") if lines is None else (200, "".join(f"{line}\n" for line in lines).encode())

    def _log_lines(self, route: Route, query: Mapping[str, str]) -> list[str] | None:
        """The lines of a pod's log that ``query`` asks for; None where there is no log yet. Raises ApiError."""
        return self.logs.read(route, self.verbs.get(route), query)

    def _check_streaming(self, route: Route, user: User) -> None:
        """Who streams by GET, as WebSockets do, must have the right to create, too."""
        if not self.verbs.authorizer.decide(user, Attributes.of("create", route)).allowed:
            raise self.verbs.authorizer.refusal(failures.forbidden(route.kind.resource, route.name, ""))

    # Eviction

    def _evict(self, route: Route, request: HttpRequest, user: User) -> bytes:
        asked = WriteOptions.of(request, user)
        sent = self.verbs.incoming.sent(_EVICTION, _in_v1(request), asked, name="", namespace=route.namespace)
        attempt = attempt_of(route, "CREATE", asked, route.name, _EVICTION.resource)
        body = self.verbs.admission.mutate(attempt, Change(sent, None), clone)
        if body["metadata"].get("name") != route.name:
            raise failures.bad_request("name in URL does not match name in Eviction object")
        dry_run = _is_dry_run(map_at(body, "deleteOptions"), asked)
        self.verbs.admission.validate(attempt, Change(body, None))
        pod = self.verbs.get(route)
        phase = map_at(pod.object, "status").get("phase")
        if phase not in _STARTED and not pod.is_deleting:
            self._take_from_budget(pod, dry_run=dry_run)
        options = {**map_at(body, "deleteOptions"), **({"dryRun": ["All"]} if asked.dry_run else {})}
        self.deletion.check_preconditions(route.kind.resource, pod, options)
        if not dry_run:
            pod = self._mark(pod)
        self.deletion.remove(pod, checked_deletion(options))
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )

    def _mark(self, pod: Stored) -> Stored:
        """``pod`` with the condition that tells who has ended it, for what is left of its time."""
        marked: JsonObject = clone(pod.object)
        status = section(marked, "status")
        others = [c for c in list_at(status, "conditions") if c.get("type") != _MARK["type"]]
        status["conditions"] = [*others, {**_MARK, "lastTransitionTime": self.verbs.writer.timestamp()}]
        return self.verbs.writer.replace(pod, marked, pod.managers)

    def _take_from_budget(self, pod: Stored, *, dry_run: bool) -> None:
        budgets = [b for b in self.verbs.storage.list(_BUDGETS, pod.key.namespace) if _covers(b, pod)]
        if not budgets:
            return
        if len(budgets) > 1:
            raise failures.untyped(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        (budget,) = budgets
        status = map_at(budget.object, "status")
        if not _is_ready(pod) and _allows_unhealthy(budget.object, status):
            return
        _check_budget(budget, status)
        if dry_run:
            return
        changed: JsonObject = clone(budget.object)
        left = section(changed, "status")
        left["disruptionsAllowed"] -= 1
        section(left, "disruptedPods")[pod.key.name] = self.verbs.writer.timestamp()
        self.verbs.writer.replace(budget, changed, budget.managers)


def _in_v1(request: HttpRequest) -> HttpRequest:
    """The request, whose body may be of ``policy/v1beta1``: of evictions that is the same."""
    body = request.body or b""
    if b"policy/v1beta1" not in body:
        return request
    return msgspec.structs.replace(request, body=body.replace(b'"policy/v1beta1"', b'"policy/v1"', 1))


def _is_dry_run(options: JsonObject, asked: WriteOptions) -> bool:
    """Whether the query or the body says so. Raises ApiError: 400, both say something, and not the same."""
    told: list[str] = options.get("dryRun") or []
    if told and asked.dry_run and told != ["All"]:
        shown = " ".join(told)
        text = f"Non-matching dry-run options in request and content: [All] and [{shown}]"
        raise failures.bad_request(text)
    return asked.dry_run or bool(told)


def _no_scale(route: Route) -> ApiError:
    if route.kind.custom:
        return failures.not_found(route.kind.resource, route.name)
    return failures.unknown_resource()


def _covers(budget: Stored, pod: Stored) -> bool:
    selector = map_at(budget.object, "spec").get("selector")
    if selector is None:
        return False
    matches = label_matcher(selector_text(selector))
    return matches is None or matches(pod.object)


def _is_ready(pod: Stored) -> bool:
    conditions = list_at(map_at(pod.object, "status"), "conditions")
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _allows_unhealthy(budget: JsonObject, status: JsonObject) -> bool:
    if map_at(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired: int = status.get("desiredHealthy", 0)
    return desired > 0 and status.get("currentHealthy", 0) >= desired


def _check_budget(budget: Stored, status: JsonObject) -> None:
    name = budget.key.name
    if status.get("observedGeneration", 0) < budget.object["metadata"].get("generation", 1):
        text = f"The disruption budget {name} is still being processed by the server."
        raise failures.disruption_refused(StatusCause(message=text, reason="DisruptionBudget"), retry_after=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {name} does not allow evicting pods currently"
        if current <= desired:
            text = f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        raise failures.disruption_refused(StatusCause(message=text, reason="DisruptionBudget"))
