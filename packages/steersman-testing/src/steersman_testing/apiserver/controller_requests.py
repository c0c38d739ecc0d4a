"""The requests of the controller manager: admission is asked about them as about everybody's.

Source: the garbage collector, the namespace controller, those that protect volumes and claims, and the one that
aggregates roles, in ``pkg/controller`` of Kubernetes 1.36; and what a webhook is asked on a cluster of that version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver.access.authorization import User, impersonated
from steersman_testing.apiserver.admission.webhooks import Attempt, Change
from steersman_testing.apiserver.callouts import Call, NeedsCall
from steersman_testing.apiserver.requests.media import APPLY, MERGE_PATCH
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.writes import Propagation

T = TypeVar("T")

# How often webhooks are asked about one object: one that writes what it keeps would be asked anew without end.
_PATIENCE = 100


def _controller(name: str) -> User:
    account = impersonated(f"system:serviceaccount:kube-system:{name}", ())
    return replace(account, agent="kube-controller-manager")


GARBAGE_COLLECTOR = _controller("generic-garbage-collector")
PVC_PROTECTOR = _controller("pvc-protection-controller")
PV_PROTECTOR = _controller("pv-protection-controller")
_NAMESPACES = _controller("namespace-controller")
_AGGREGATION = _controller("clusterrole-aggregation-controller")


@dataclass(slots=True)
class ControllerRequests:
    """Makes them. One that is refused, or that a webhook has to be asked about first, does nothing, and says so.

    Attributes:
        resisting: UIDs of objects in which a webhook undoes what a controller writes: it is let alone until the next
            write of somebody.
        asked: what webhooks were asked about each object, by its UID; it is let alone where that is too much.
    """

    verbs: Verbs
    resisting: set[str] = field(default_factory=set[str])
    asked: dict[str, set[tuple[bytes, ...]]] = field(default_factory=dict[str, set[tuple[bytes, ...]]])
    _needed: dict[bytes, Call] = field(default_factory=dict[bytes, Call])
    _told: set[str] = field(default_factory=set[str])
    _refusal: ApiError | None = None

    def check(self) -> None:
        """To be called when nothing more can be done for now.

        Raises:
            NeedsCall: webhooks have to be asked.
            ApiError: 501, something cannot be asked about here; said once for each object.
        """
        if needed := list(self._needed.values()):
            self._needed.clear()
            raise NeedsCall(needed)
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def delete(self, item: Stored, policy: Propagation) -> bool:
        """Deletes ``item`` as the garbage collector does; whether that could be done."""
        preconditions = {"uid": item.uid, "resourceVersion": str(item.version)}
        options: JsonObject = {"preconditions": preconditions, "propagationPolicy": policy}
        if not self._lets_go(item, GARBAGE_COLLECTOR, item.key.name, options):
            return False
        self.verbs.writer.delete(item, policy)
        return True

    def empty(self, item: Stored) -> bool:
        """Deletes ``item`` as the namespace controller does, with all of its kind; whether that could be done.

        Pods go at once: no kubelet ends them.
        """
        if not self._lets_go(item, _NAMESPACES, "", {"propagationPolicy": "Background"}):
            return False
        self.verbs.writer.delete(item, "Background", grace=0)
        return True

    def edit(self, item: Stored, changes: JsonObject, user: User = GARBAGE_COLLECTOR) -> Stored | None:
        """``item`` with ``changes`` of its metadata, in which what is empty goes; None where it was not changed."""
        wanted = {name: value or None for name, value in changes.items()}
        route = self._route(item)
        if route is None:
            return None
        request = _request("PATCH", {"metadata": wanted}, MERGE_PATCH)
        changed = self._made(item, lambda: self.verbs.patch(route, request, user))
        if changed is None:
            return None
        meta = changed.object["metadata"]
        return self._obeyed(changed, all((meta.get(name) or None) == value for name, value in wanted.items()))

    def end(self, namespace: Stored) -> None:
        """Lets go of a namespace that is empty."""
        route = self._route(namespace, "finalize")
        if route is None:
            return
        obj = namespace.rendered(route.kind.resource.api_version)
        request = _request("PUT", {**obj, "spec": {**obj.get("spec", {}), "finalizers": []}})
        self._made(namespace, lambda: self.verbs.update(route, request, _NAMESPACES))

    def aggregate(self, role: Stored, rules: list[JsonObject]) -> None:
        """Applies ``rules`` to a ClusterRole."""
        route = self._route(role)
        if route is None:
            return
        resource = route.kind.resource
        named: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        config = {**named, "metadata": {"name": role.key.name}, **({"rules": rules} if rules else {})}
        request = _request("PATCH", config, APPLY, fieldManager="clusterrole-aggregation-controller", force="true")
        changed = self._made(role, lambda: self.verbs.patch(route, request, _AGGREGATION))
        if changed is not None:
            self._obeyed(changed, (changed.object.get("rules") or []) == rules)

    def _route(self, item: Stored, subresource: str = "") -> Route | None:
        kind = self.verbs.kinds.of(item.collection)
        return None if kind is None else Route(kind, item.key.namespace, item.key.name, subresource)

    def _obeyed(self, changed: Stored, obeyed: bool) -> Stored | None:
        if obeyed:
            return changed
        self.resisting.add(changed.uid)
        return None

    def _lets_go(self, item: Stored, user: User, name: str, options: JsonObject) -> bool:
        route, admission = self._route(item), self.verbs.admission
        if route is None or not admission.is_configured:
            return True
        resource = route.kind.resource
        attempt = Attempt("DELETE", resource, "", item.key.namespace, name, user, False, options)

        def ask() -> bool:
            change = Change(None, self.verbs.conversion.read(route.kind, item).rendered(resource.api_version))
            admission.mutate_deletion(attempt, change)
            admission.validate(attempt, change)
            return True

        return self._made(item, ask) is not None

    def _made(self, item: Stored, request: Callable[[], T]) -> T | None:
        if item.uid in self.resisting:
            return None
        try:
            return request()
        except NeedsCall as needed:
            calls = {call.key: call for call in needed.calls}
            asked = self.asked.setdefault(item.uid, set())
            asked.add(tuple(calls))
            if len(asked) <= _PATIENCE:
                self._needed |= calls
        except ApiError as error:
            if error.code == 501 and item.uid not in self._told:
                self._told.add(item.uid)
                self._refusal = self._refusal or error
        return None


def _request(method: str, body: JsonObject, content_type: str = "application/json", **query: str) -> HttpRequest:
    return HttpRequest(method=method, path="", query=query, body=msgspec.json.encode(body), content_type=content_type)
