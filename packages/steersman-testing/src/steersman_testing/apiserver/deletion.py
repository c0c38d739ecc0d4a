"""DELETE of objects and collections.

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
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.admission.chain import AdmissionChain
from steersman_testing.apiserver.admission.webhooks import AdmissionAttributes, AdmissionObjects
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.kinds import NAMESPACE
from steersman_testing.apiserver.lists import encode_list, list_page
from steersman_testing.apiserver.options import delete_options
from steersman_testing.apiserver.requests.negotiation import negotiate_metadata
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_object
from steersman_testing.apiserver.writes import JOBS, DeletionPropagation, StorageWriter

INITIAL_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_UNDELETABLE_NAMESPACES = ("default", "kube-public", "kube-system")
_DELETE_OPTION_FIELDS = ("gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy")
_RETURNS_DELETED_OBJECT = {
    "Pod",
    "Service",
    "ServiceAccount",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "StorageClass",
}
_ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class DeletionHandler:
    """Handles deletions.

    Each method raises ApiError if the real server rejects the request.
    """

    storage: Storage
    writer: StorageWriter
    converter: VersionConverter
    admission: AdmissionChain

    def delete(self, route: Route, request: HttpRequest, user: RequestUser) -> tuple[int, bytes]:
        """Delete an object or mark it for deletion.

        Returns:
            status code and body of the response.
        """
        options = delete_options(request)
        kind = route.kind
        found = self.storage.get(kind.collection, route.key)
        if found is None:
            raise failures.not_found(kind.resource, route.name)
        old = self.converter.from_storage(kind, found)
        self._warn(route, options)
        self._admit(route, old, options, user)
        remaining, is_removed = self.remove(old, {**options, "dryRun": "All"})
        if is_removed and (kind.is_custom or kind.resource.kind not in _RETURNS_DELETED_OBJECT):
            self.remove(old, options)
            return 200, _deleted_status(kind.resource, old)
        # Rejections come before the first write. A webhook may have to convert the object of the response.
        partial = negotiate_metadata(request)
        self.converter.from_storage(kind, remaining)
        remaining = self.converter.from_storage(kind, self.remove(old, options)[0])
        return 200, remaining.to_json(kind.resource.api_version, partial=partial)

    def delete_collection(self, route: Route, request: HttpRequest, user: RequestUser) -> bytes:
        """Delete the selected objects up to the first rejected one.

        Returns:
            the list of all selected objects, as JSON.
        """
        options = delete_options(request)
        partial = negotiate_metadata(request, is_list=True)
        self._warn(route, options)
        items, meta = list_page(self.storage, route, request.query, self.converter)
        first_error: ApiError | None = None
        admitted: list[StoredObject] = []
        for stored in items:
            # Admission of all objects comes first, because webhooks see the state before the deletions.
            try:
                self._admit(route, stored, options, user)
            except ApiError as error:
                first_error = error
                break
            admitted.append(stored)
        for stored in admitted:
            self.remove(stored, options)
        if first_error is not None:
            raise first_error
        return encode_list(route.kind, items, meta, partial=partial)

    def check_preconditions(self, resource: ApiResource, old: StoredObject, options: JsonObject) -> None:
        """Reject a deletion whose preconditions fail."""
        preconditions = get_object(options, "preconditions")
        for field, name, found in (("UID", "uid", old.uid), ("ResourceVersion", "resourceVersion", str(old.version))):
            expected = preconditions.get(name)
            if expected is None or expected == found:
                continue
            if resource == NAMESPACE:
                reason = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {found}"
                raise failures.conflict(resource, old.key.name, reason)
            raise failures.precondition_failed(resource, old.key.name, field, expected, found)

    def remove(self, old: StoredObject, options: Mapping[str, Any]) -> tuple[StoredObject, bool]:
        """Delete ``old`` with DeleteOptions.

        Returns:
            the last state of the object, and True if it was removed.
        """
        propagation: DeletionPropagation | None = options.get("propagationPolicy") or None
        grace = options.get("gracePeriodSeconds")
        dry_run = bool(options.get("dryRun"))
        seconds = None if grace is None else int(grace)
        return self.writer.delete(old.storage_form or old, propagation, grace=seconds, dry_run=dry_run)

    def _warn(self, route: Route, options: JsonObject) -> None:
        if route.kind.collection == JOBS and not options.get("propagationPolicy"):
            self.admission.warnings.append(_ORPHAN_WARNING)

    def _admit(self, route: Route, old: StoredObject, options: JsonObject, user: RequestUser) -> None:
        """Check preconditions and run the NamespaceLifecycle plugin and the webhooks."""
        resource, name = route.kind.resource, old.key.name
        self.check_preconditions(resource, old, options)
        if resource == NAMESPACE and name in _UNDELETABLE_NAMESPACES:
            raise failures.forbidden(resource, name, "this namespace may not be deleted")
        if not self.admission.is_configured:
            return
        delete_options = {k: options[k] for k in _DELETE_OPTION_FIELDS if options.get(k) is not None}
        dry_run = bool(options.get("dryRun"))
        if dry_run:
            delete_options["dryRun"] = ["All"]
        namespace = route.namespace
        if resource == NAMESPACE:
            delete_options.setdefault("preconditions", {"uid": old.uid})
            # A Namespace is in itself.
            namespace = name
        attributes = AdmissionAttributes("DELETE", resource, "", namespace, route.name, user, dry_run, delete_options)
        objects = AdmissionObjects(None, old.to_wire(resource.api_version))
        self.admission.mutate_deletion(attributes, objects)
        self.admission.validate(attributes, objects)


def _deleted_status(resource: ApiResource, old: StoredObject) -> bytes:
    details: JsonObject = {"name": old.key.name, "kind": resource.plural, "uid": old.uid}
    if resource.group:
        details["group"] = resource.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return msgspec.json.encode(status)
