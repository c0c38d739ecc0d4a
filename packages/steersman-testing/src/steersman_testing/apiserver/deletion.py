"""DELETE of objects and of collections: what is asked before, and what is answered.

Source: ``Delete`` and ``DeleteCollection`` of ``k8s.io/apiserver/pkg/registry/generic/registry``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import User
from steersman_testing.apiserver.admission.chain import Admission
from steersman_testing.apiserver.admission.webhooks import Attempt, Change
from steersman_testing.apiserver.definitions.conversion import Conversion
from steersman_testing.apiserver.kinds import NAMESPACE
from steersman_testing.apiserver.listing import encode_list, page_of
from steersman_testing.apiserver.options import delete_options
from steersman_testing.apiserver.requests.negotiation import wants_metadata
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, map_at
from steersman_testing.apiserver.writes import JOBS, Propagation, Writer

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_IMMORTAL = ("default", "kube-public", "kube-system")
_OPTIONS = ("gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy")
_RETURNS_THE_DELETED = {
    "Pod",
    "Service",
    "ServiceAccount",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "StorageClass",
}
_ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Carries out deletions. Every method raises ApiError as the real server would refuse."""

    storage: Storage
    writer: Writer
    conversion: Conversion
    admission: Admission

    def delete(self, route: Route, request: HttpRequest, user: User) -> tuple[int, bytes]:
        """Deletes an object, or marks it; the answer's code and body."""
        options = delete_options(request)
        kind = route.kind
        found = self.storage.get(kind.collection, route.key)
        if found is None:
            raise failures.not_found(kind.resource, route.name)
        old = self.conversion.read(kind, found)
        self._warn(route, options)
        self._admit(route, old, options, user)
        left, gone = self.remove(old, {**options, "dryRun": "All"})
        if gone and (kind.custom or kind.resource.kind not in _RETURNS_THE_DELETED):
            self.remove(old, options)
            return 200, _deleted_status(kind.resource, old)
        # All that can be refused comes before anything is stored; what will be left may be converted by a webhook.
        partial = wants_metadata(request)
        self.conversion.read(kind, left)
        left = self.conversion.read(kind, self.remove(old, options)[0])
        return 200, left.encoded(kind.resource.api_version, partial=partial)

    def delete_collection(self, route: Route, request: HttpRequest, user: User) -> bytes:
        """Deletes the objects that the query selects, up to the first that is refused; the list of all of them."""
        options = delete_options(request)
        partial = wants_metadata(request, listed=True)
        self._warn(route, options)
        chosen, meta = page_of(self.storage, route, request.query, self.conversion)
        refused: ApiError | None = None
        admitted: list[Stored] = []
        for stored in chosen:
            # All are asked about before the first goes: webhooks answer while nothing has changed yet.
            try:
                self._admit(route, stored, options, user)
            except ApiError as error:
                refused = error
                break
            admitted.append(stored)
        for stored in admitted:
            self.remove(stored, options)
        if refused is not None:
            raise refused
        return encode_list(route.kind, chosen, meta, partial=partial)

    def check_preconditions(self, resource: ApiResource, old: Stored, options: JsonObject) -> None:
        """Refuses a deletion whose preconditions do not hold."""
        preconditions = map_at(options, "preconditions")
        for field, name, found in (("UID", "uid", old.uid), ("ResourceVersion", "resourceVersion", str(old.version))):
            wanted = preconditions.get(name)
            if wanted is None or wanted == found:
                continue
            if resource == NAMESPACE:
                because = f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
                raise failures.conflict(resource, old.key.name, because)
            raise failures.precondition_failed(resource, old.key.name, field, wanted, found)

    def remove(self, old: Stored, options: Mapping[str, Any]) -> tuple[Stored, bool]:
        """Deletes ``old`` as the DeleteOptions say; tells whether it is gone."""
        propagation: Propagation | None = options.get("propagationPolicy") or None
        grace = options.get("gracePeriodSeconds")
        dry_run = bool(options.get("dryRun"))
        seconds = None if grace is None else int(grace)
        return self.writer.delete(old.origin or old, propagation, grace=seconds, dry_run=dry_run)

    def _warn(self, route: Route, options: JsonObject) -> None:
        if route.kind.collection == JOBS and not options.get("propagationPolicy"):
            self.admission.warnings.append(_ORPHANS)

    def _admit(self, route: Route, old: Stored, options: JsonObject, user: User) -> None:
        """Whether ``old`` may go: preconditions, the NamespaceLifecycle admission plugin, the webhooks."""
        resource, name = route.kind.resource, old.key.name
        self.check_preconditions(resource, old, options)
        if resource == NAMESPACE and name in _IMMORTAL:
            raise failures.forbidden(resource, name, "this namespace may not be deleted")
        if not self.admission.is_configured:
            return
        told = {k: options[k] for k in _OPTIONS if options.get(k) is not None}
        dry_run = bool(options.get("dryRun"))
        if dry_run:
            told["dryRun"] = ["All"]
        namespace = route.namespace
        if resource == NAMESPACE:
            told.setdefault("preconditions", {"uid": old.uid})
            # A Namespace is in itself.
            namespace = name
        attempt = Attempt("DELETE", resource, "", namespace, route.name, user, dry_run, told)
        change = Change(None, old.rendered(resource.api_version))
        self.admission.mutate_deletion(attempt, change)
        self.admission.validate(attempt, change)


def _deleted_status(resource: ApiResource, old: Stored) -> bytes:
    details: JsonObject = {"name": old.key.name, "kind": resource.plural, "uid": old.uid}
    if resource.group:
        details["group"] = resource.group
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return msgspec.json.encode(answer)
