"""Requests of the controller manager, which pass admission like all requests.

Source: the garbage collector, the namespace controller, the PVC and PV protection controllers and the ClusterRole
aggregation controller in ``pkg/controller`` of Kubernetes 1.36; webhook requests of a cluster of that version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver.access.authorization import RequestUser, impersonated_user
from steersman_testing.apiserver.admission.webhooks import AdmissionAttributes, AdmissionObjects
from steersman_testing.apiserver.requests.media import APPLY, MERGE_PATCH
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.apiserver.verbs import Verbs
from steersman_testing.apiserver.webhook_calls import PendingWebhook, WebhookCall
from steersman_testing.apiserver.writes import DeletionPropagation

T = TypeVar("T")

# Limit of webhook calls for one object. A webhook that changes a kept object would be called endlessly.
_MAX_WEBHOOK_ROUNDS = 100


def _controller_user(name: str) -> RequestUser:
    account = impersonated_user(f"system:serviceaccount:kube-system:{name}", ())
    return replace(account, user_agent="kube-controller-manager")


GARBAGE_COLLECTOR = _controller_user("generic-garbage-collector")
PVC_PROTECTION_CONTROLLER = _controller_user("pvc-protection-controller")
PV_PROTECTION_CONTROLLER = _controller_user("pv-protection-controller")
_NAMESPACE_CONTROLLER = _controller_user("namespace-controller")
_AGGREGATION_CONTROLLER = _controller_user("clusterrole-aggregation-controller")


@dataclass(slots=True)
class ControllerRequests:
    """Sends requests as the controllers.

    A rejected request has no effect and returns False or None. The same holds while a webhook call is pending.

    Attributes:
        reverted_uids: UIDs of objects whose changes a webhook reverted. Controllers skip them until the next write.
        webhook_rounds: webhook calls for each object, by its UID. Too many of them stop the controllers.
    """

    verbs: Verbs
    reverted_uids: set[str] = field(default_factory=set[str])
    webhook_rounds: dict[str, set[tuple[bytes, ...]]] = field(default_factory=dict[str, set[tuple[bytes, ...]]])
    _pending_calls: dict[bytes, WebhookCall] = field(default_factory=dict[bytes, WebhookCall])
    _reported_uids: set[str] = field(default_factory=set[str])
    _unsupported_error: ApiError | None = None

    def raise_pending(self) -> None:
        """Raise the pending webhook calls or the recorded error.

        Raises:
            PendingWebhook: webhooks must be called.
            ApiError: 501, a webhook call is not implemented. Each object reports it once.
        """
        if pending := list(self._pending_calls.values()):
            self._pending_calls.clear()
            raise PendingWebhook(pending)
        error, self._unsupported_error = self._unsupported_error, None
        if error is not None:
            raise error

    def delete(self, item: StoredObject, policy: DeletionPropagation) -> bool:
        """Delete ``item`` as the garbage collector. Return True on success."""
        preconditions = {"uid": item.uid, "resourceVersion": str(item.version)}
        options: JsonObject = {"preconditions": preconditions, "propagationPolicy": policy}
        if not self._admit_deletion(item, GARBAGE_COLLECTOR, item.key.name, options):
            return False
        self.verbs.writer.delete(item, policy)
        return True

    def delete_namespace_content(self, item: StoredObject) -> bool:
        """Delete ``item`` as the namespace controller. Return True on success.

        Pods go without a grace period, because no kubelet terminates them.
        """
        if not self._admit_deletion(item, _NAMESPACE_CONTROLLER, "", {"propagationPolicy": "Background"}):
            return False
        self.verbs.writer.delete(item, "Background", grace=0)
        return True

    def patch_metadata(
        self, item: StoredObject, changes: JsonObject, user: RequestUser = GARBAGE_COLLECTOR
    ) -> StoredObject | None:
        """Patch the metadata of ``item``.

        Args:
            changes: new values of metadata fields. Empty values remove the field.

        Returns:
            the changed object, or None if it was not changed.
        """
        patch = {name: value or None for name, value in changes.items()}
        route = self._route(item)
        if route is None:
            return None
        request = _request("PATCH", {"metadata": patch}, MERGE_PATCH)
        changed = self._try_request(item, lambda: self.verbs.patch(route, request, user))
        if changed is None:
            return None
        meta = changed.object["metadata"]
        return self._check_applied(changed, all((meta.get(name) or None) == value for name, value in patch.items()))

    def finalize_namespace(self, namespace: StoredObject) -> None:
        """Remove the finalizers of an empty namespace."""
        route = self._route(namespace, "finalize")
        if route is None:
            return
        obj = namespace.to_wire(route.kind.resource.api_version)
        request = _request("PUT", {**obj, "spec": {**obj.get("spec", {}), "finalizers": []}})
        self._try_request(namespace, lambda: self.verbs.update(route, request, _NAMESPACE_CONTROLLER))

    def apply_aggregated_rules(self, role: StoredObject, rules: list[JsonObject]) -> None:
        """Apply ``rules`` to a ClusterRole."""
        route = self._route(role)
        if route is None:
            return
        resource = route.kind.resource
        type_meta: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        config = {**type_meta, "metadata": {"name": role.key.name}, **({"rules": rules} if rules else {})}
        request = _request("PATCH", config, APPLY, fieldManager="clusterrole-aggregation-controller", force="true")
        changed = self._try_request(role, lambda: self.verbs.patch(route, request, _AGGREGATION_CONTROLLER))
        if changed is not None:
            self._check_applied(changed, (changed.object.get("rules") or []) == rules)

    def _route(self, item: StoredObject, subresource: str = "") -> Route | None:
        kind = self.verbs.kinds.find_by_collection(item.collection)
        return None if kind is None else Route(kind, item.key.namespace, item.key.name, subresource)

    def _check_applied(self, changed: StoredObject, applied: bool) -> StoredObject | None:
        if applied:
            return changed
        self.reverted_uids.add(changed.uid)
        return None

    def _admit_deletion(self, item: StoredObject, user: RequestUser, name: str, options: JsonObject) -> bool:
        route, admission = self._route(item), self.verbs.admission
        if route is None or not admission.is_configured:
            return True
        resource = route.kind.resource
        attributes = AdmissionAttributes("DELETE", resource, "", item.key.namespace, name, user, False, options)

        def admit() -> bool:
            objects = AdmissionObjects(
                None, self.verbs.converter.from_storage(route.kind, item).to_wire(resource.api_version)
            )
            admission.mutate_deletion(attributes, objects)
            admission.validate(attributes, objects)
            return True

        return self._try_request(item, admit) is not None

    def _try_request(self, item: StoredObject, request: Callable[[], T]) -> T | None:
        if item.uid in self.reverted_uids:
            return None
        try:
            return request()
        except PendingWebhook as pending:
            calls = {call.key: call for call in pending.calls}
            rounds = self.webhook_rounds.setdefault(item.uid, set())
            rounds.add(tuple(calls))
            if len(rounds) <= _MAX_WEBHOOK_ROUNDS:
                self._pending_calls |= calls
        except ApiError as error:
            if error.code == 501 and item.uid not in self._reported_uids:
                self._reported_uids.add(item.uid)
                self._unsupported_error = self._unsupported_error or error
        return None


def _request(method: str, body: JsonObject, content_type: str = "application/json", **query: str) -> HttpRequest:
    return HttpRequest(method=method, path="", query=query, body=msgspec.json.encode(body), content_type=content_type)
