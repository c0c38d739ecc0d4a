"""Scale, eviction, token and log: what lies below an object's path beside its status.

Source: ``pkg/registry/apps/deployment/storage``, ``pkg/registry/core/pod/storage/eviction.go`` and
``pkg/registry/core/serviceaccount/storage/token.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError, StatusCause
from steersman.meta import ApiResource, ObjectKey
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.authorization import User
from steersman.testing.apiserver.bodies import decode_body, decode_options
from steersman.testing.apiserver.failures import FieldError, invalid_value
from steersman.testing.apiserver.kinds import GroupResource, Kind
from steersman.testing.apiserver.listing import parse_number
from steersman.testing.apiserver.options import WriteOptions
from steersman.testing.apiserver.ownership import UNNAMED, ManagerKey, Managers
from steersman.testing.apiserver.routes import Route
from steersman.testing.apiserver.selectors import label_matcher, selector_text
from steersman.testing.apiserver.storage import Stored
from steersman.testing.apiserver.strategy import prepare_update
from steersman.testing.apiserver.tokens import AUDIENCE, Tokens
from steersman.testing.apiserver.values import JsonObject, clone, is_map, list_at, map_at, metadata, section
from steersman.testing.apiserver.verbs import Verbs, attempt_of, patched
from steersman.testing.apiserver.webhooks import Change

SCALE = ApiResource("autoscaling", "v1", "Scale", "scale")
_EVICTION = ApiResource("policy", "v1", "Eviction", "eviction")
_TOKEN_REQUEST = ApiResource("authentication.k8s.io", "v1", "TokenRequest", "token")
_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_SHORTEST_TOKEN = 600
_STARTED = ("Pending", "Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Subresources:
    """Answers requests to subresources other than status.

    Attributes:
        tokens: those that were given out.
        logs: the lines of pods' logs, which tests write.
    """

    verbs: Verbs
    tokens: Tokens
    logs: dict[ObjectKey, Sequence[str]] = field(default_factory=dict[ObjectKey, Sequence[str]])

    def answer(self, route: Route, request: HttpRequest, user: User) -> tuple[int, bytes]:
        """The answer's code and body for ``user``.

        Raises:
            ApiError: the real server would refuse, or this one does not imitate it.
        """
        match route.subresource, route.kind.resource.plural, request.method:
            case "scale", _, "GET" if route.kind.scale is not None:
                return 200, _encoded_scale(self.verbs.get(route), route.kind)
            case "scale", _, ("PUT" | "PATCH") if route.kind.scale is not None:
                return 200, self._set_scale(route, request, user)
            case "eviction", "pods", "POST":
                return 201, self._evict(route, request, user)
            case "token", "serviceaccounts", "POST":
                return 201, self._create_token(route, request, user)
            case "finalize", "namespaces", "PUT":
                return 200, self._finalize(route, request)
            case "log", "pods", "GET":
                return 200, "".join(f"{line}\n" for line in self.log_lines(route, request.query)).encode()
            case ("scale", _, _) if route.kind.scale is not None:
                raise failures.method_not_allowed()
            case ("eviction" | "log", "pods", _) | ("token", "serviceaccounts", _) | ("finalize", "namespaces", _):
                raise failures.method_not_allowed()
            case "scale", _, _:
                raise _no_scale(route)
            case other, plural, _:
                raise failures.refused_here(f"the subresource {plural}/{other}")

    # Scale

    def _set_scale(self, route: Route, request: HttpRequest, user: User) -> bytes:
        kind, options = route.kind, WriteOptions.of(request, user)
        old = self.verbs.get(route)
        # Patching an object that lacks the field adds it; only reading the scale of one is an error.
        before = _scale(old, kind, lenient=True)
        attempt, admission = attempt_of(route, "UPDATE", options, route.name, SCALE), self.verbs.admission
        sent = admission.mutate(attempt, Change(_sent_scale(before, request, kind), before), clone)
        if (version := metadata(sent).get("resourceVersion")) and version != str(old.version):
            raise failures.modified(kind.resource, route.name)
        replicas = map_at(sent, "spec").get("replicas", 0)
        if replicas < 0:
            raise _negative(kind, route.name, replicas)
        obj: JsonObject = clone(old.object)
        assert kind.scale is not None
        *parents, last = _path(kind.scale.spec)
        place = obj
        for name in parents:
            place = section(place, name)
        place[last] = replicas
        obj = prepare_update(kind, old.object, obj, "")
        manager = ManagerKey(options.manager or UNNAMED, "Update", "scale", kind.resource.api_version)
        managers = self.verbs.own(kind, manager, old.managers, old.object, obj)
        if not _takes(old.managers, managers):
            # A field that nobody owns stays so: see skipNonApplied in apimachinery's managedfields.
            managers = old.managers
        draft = Stored(old.collection, old.key, obj, managers, old.version)
        admission.validate(attempt, Change(_scale(draft, kind), before))
        return _encoded_scale(self.verbs.keep(kind, old, obj, managers, dry_run=options.dry_run), kind)

    # Eviction

    def _evict(self, route: Route, request: HttpRequest, user: User) -> bytes:
        body = decode_body(request)
        if not is_map(body) or map_at(body, "metadata").get("name") != route.name:
            raise failures.bad_request("name in URL does not match name in Eviction object")
        asked = WriteOptions.of(request, user)
        attempt, admission = attempt_of(route, "CREATE", asked, route.name, _EVICTION), self.verbs.admission
        names = {"kind": _EVICTION.kind, "apiVersion": _EVICTION.api_version}
        placed = {**body, **names, "metadata": {**body["metadata"], "namespace": route.namespace}}
        body = admission.mutate(attempt, Change(placed, None), clone)
        admission.validate(attempt, Change(body, None))
        pod = self.verbs.get(route)
        dry_run = asked.dry_run
        options = {**map_at(body, "deleteOptions"), **({"dryRun": ["All"]} if dry_run else {})}
        self.verbs.check_preconditions(route, pod, options)
        phase = map_at(pod.object, "status").get("phase")
        if phase not in _STARTED and not pod.is_deleting:
            self._take_from_budget(pod, dry_run=dry_run)
        self.verbs.remove(pod, options)
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )

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

    # Namespaces

    def _finalize(self, route: Route, request: HttpRequest) -> bytes:
        """Sets ``spec.finalizers``, which nothing else changes; the last one gone, so is a namespace in deletion."""
        old = self.verbs.get(route)
        sent = list_at(map_at(decode_options(request), "spec"), "finalizers")
        spec: JsonObject = {**map_at(old.object, "spec"), "finalizers": sent}
        if not sent:
            del spec["finalizers"]
        dry_run = WriteOptions.of(request).dry_run
        kept = self.verbs.writer.replace(old, {**old.object, "spec": spec}, old.managers, dry_run=dry_run)
        return kept.encoded(route.kind.resource.api_version)

    # Tokens

    def _create_token(self, route: Route, request: HttpRequest, user: User) -> bytes:
        account = self.verbs.get(route)
        options = WriteOptions.of(request, user)
        self.verbs.admission.check_unasked(attempt_of(route, "CREATE", options, route.name))
        spec = map_at(decode_options(request), "spec")
        seconds = int(spec.get("expirationSeconds") or 3600)
        if seconds < _SHORTEST_TOKEN:
            error = invalid_value(
                "spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"
            )
            raise failures.invalid(_TOKEN_REQUEST, "", [error])
        audiences: list[str] = spec.get("audiences") or [AUDIENCE]
        runtime = self.verbs.runtime
        expires = runtime.clock.now() + timedelta(seconds=seconds)
        token = self.tokens.issue(account, tuple(audiences), expires, runtime.random.getrandbits(128))
        meta = account.object["metadata"]
        answer = {
            "kind": "TokenRequest",
            "apiVersion": _TOKEN_REQUEST.api_version,
            "metadata": {n: meta[n] for n in ("name", "namespace", "uid", "creationTimestamp")},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": self.verbs.writer.timestamp(seconds)},
        }
        return msgspec.json.encode(answer)

    # Logs

    def log_lines(self, route: Route, query: Mapping[str, str]) -> list[str]:
        """The lines of a pod's log that ``query`` asks for."""
        pod = self.verbs.get(route)
        containers = [c["name"] for c in map_at(pod.object, "spec").get("containers", ())]
        asked = query.get("container", "")
        if asked and asked not in containers:
            raise failures.bad_request(f"container {asked} is not valid for pod {route.name}")
        if not asked and len(containers) > 1:
            choice = " ".join(containers)
            text = f"a container name must be specified for pod {route.name}, choose one of: [{choice}]"
            raise failures.bad_request(text)
        lines = list(self.logs.get(route.key, ()))
        return lines[-parse_number(query, "tailLines") :] if query.get("tailLines", "") not in ("", "0") else lines


def _takes(before: Managers, after: Managers) -> bool:
    """Whether any manager owns less than before."""
    return any(key not in after or owned.fields - after[key].fields for key, owned in before.items())


def _path(path: str) -> list[str]:
    return path.lstrip(".").split(".")


def _at(obj: JsonObject, path: str) -> Any:
    *parents, last = _path(path)
    place = obj
    for name in parents:
        place = map_at(place, name)
    return place.get(last)


def _scale(stored: Stored, kind: Kind, *, lenient: bool = False) -> JsonObject:
    """``autoscaling/v1 Scale`` of an object.

    Raises:
        ApiError: 500, a custom resource does not have the field; unless ``lenient``.
    """
    paths = kind.scale
    assert paths is not None
    replicas = _at(stored.object, paths.spec)
    if replicas is None and not lenient:
        raise failures.internal(f'the spec replicas field "{paths.spec}" does not exist')
    meta = stored.object["metadata"]
    status: JsonObject = {"replicas": _at(stored.object, paths.status) or 0}
    selector = _at(stored.object, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector_text(selector) if is_map(selector) else selector
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {n: meta[n] for n in names if n in meta},
        "spec": {} if replicas is None else {"replicas": replicas},
        "status": status,
    }


def _sent_scale(before: JsonObject, request: HttpRequest, kind: Kind) -> JsonObject:
    """What the request makes of ``before``."""
    sent = decode_body(request)
    if request.method == "PATCH":
        sent = patched(before, sent, request, kind)
    named = (sent.get("apiVersion"), sent.get("kind")) if is_map(sent) else None
    if named != (SCALE.api_version, SCALE.kind):
        raise failures.bad_request(f"{named} cannot be handled as a Scale")
    return sent


def _encoded_scale(stored: Stored, kind: Kind) -> bytes:
    return msgspec.json.encode(_scale(stored, kind))


def _no_scale(route: Route) -> ApiError:
    if route.kind.custom:
        return failures.not_found(route.kind.resource, route.name)
    return failures.unknown_resource()


def _negative(kind: Kind, name: str, replicas: int) -> ApiError:
    if kind.custom and kind.scale is not None:
        error = invalid_value(kind.scale.spec, replicas, "should be a non-negative integer")
        return failures.invalid(kind.resource, name, [error])
    error: FieldError = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    return failures.invalid(SCALE, name, [error])


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
        text = f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        raise failures.disruption_refused(StatusCause(message=text, reason="DisruptionBudget"))
