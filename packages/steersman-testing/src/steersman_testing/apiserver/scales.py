"""Subresource scale: the replicas of an object of any kind.

Source: ``pkg/registry/apps/deployment/storage`` of Kubernetes 1.36; ``pkg/registry/customresource`` of
``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.admission.attributes import admission_attributes
from steersman_testing.apiserver.admission.webhooks import AdmissionObjects
from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.fields.field_paths import FieldPath
from steersman_testing.apiserver.fields.managed_fields import ManagedFields, ManagerIdentifier, merged_on_read
from steersman_testing.apiserver.fields.scale_managers import to_parent_managers, to_subresource_managers
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.patch_requests import apply_patch
from steersman_testing.apiserver.requests.bodies import SCHEME, decode_body, set_name_and_namespace
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.requests.selectors import label_selector_text
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.strategy import prepare_for_update, redecode
from steersman_testing.apiserver.values import JsonObject, clone, ensure_map, ensure_metadata, get_object, is_map
from steersman_testing.apiserver.verbs import Verbs

_SCALE_KIND = ServedKind(resource=ApiResource("autoscaling", "v1", "Scale", "scale"), shape=BuiltinShape(("Scale",)))
# Placeholder for a missing field of a custom resource. A patch must replace it.
_MISSING_REPLICAS = -(2**31)


@dataclass(frozen=True, slots=True)
class ScaleHandler:
    """Reads and writes scales.

    Each method raises ApiError if the real server rejects the request.
    """

    verbs: Verbs

    def read(self, route: Route) -> bytes:
        """Return the Scale of an object as JSON."""
        return _encode_scale(self.verbs.get(route), route.kind)

    def write(self, route: Route, request: HttpRequest, user: RequestUser) -> bytes:
        """Set the replicas of an object and return its Scale as JSON."""
        kind, options = route.kind, WriteOptions.of(request, user)
        scale = self._decode_put(route, request, options) if request.method == "PUT" else None
        old = self.verbs.get(route)
        old_scale = _scale_of(old, kind, missing=_MISSING_REPLICAS)
        if scale is None:
            scale = self._decode_patch(route, request, options, old_scale)
            _check_patched_uid(route, scale, old)
        elif uid := ensure_metadata(scale).get("uid"):
            self.verbs.check_uid(route, old, uid)
        attributes, admission = (
            admission_attributes(route, "UPDATE", options, route.name, _SCALE_KIND.resource),
            self.verbs.admission,
        )
        scale = admission.mutate(attributes, AdmissionObjects(scale, old_scale), clone)
        self.verbs.check_resource_version(route, old, ensure_metadata(scale))
        obj = _with_replicas(old, kind, get_object(scale, "spec").get("replicas") or 0)
        obj = prepare_for_update(kind, old.object, redecode(kind, obj), "")
        managers = self._updated_managers(kind, options, old, old_scale, scale)
        candidate = StoredObject(old.collection, old.key, obj, managers, old.version)
        admission.validate(attributes, AdmissionObjects(_scale_of(candidate, kind), old_scale))
        return _encode_scale(self.verbs.store_update(kind, old, obj, managers, dry_run=options.dry_run), kind)

    def _updated_managers(
        self, kind: ServedKind, options: WriteOptions, old: StoredObject, old_scale: JsonObject, scale: JsonObject
    ) -> ManagedFields:
        """Return the managed fields after ``scale`` replaced ``old_scale``."""
        previous, replicas_path = merged_on_read(old.managers), partial(self._replicas_path, kind)
        scale_managers = to_subresource_managers(previous, replicas_path)
        if scale_managers:
            # Replicas without a manager stay so. Source: skipNonApplied of apimachinery's managedfields.
            manager = ManagerIdentifier(options.effective_manager, "Update", "scale")
            now = self.verbs.writer.timestamp()
            scale_managers = self.verbs.update_managers(
                _SCALE_KIND, manager, scale_managers, _owned_fields(old_scale), _owned_fields(scale), now=now
            )
        return to_parent_managers(previous, scale_managers, kind.resource.api_version, replicas_path)

    def _replicas_path(self, kind: ServedKind, api_version: str) -> FieldPath | None:
        group, _, version = api_version.rpartition("/")
        found = self.verbs.kinds.find(group, version, kind.resource.plural)
        return (
            None
            if found is None or found.scale is None
            else tuple(f"f:{n}" for n in _path_segments(found.scale.spec_replicas_path))
        )

    def _decode_put(self, route: Route, request: HttpRequest, options: WriteOptions) -> JsonObject:
        try:
            scale = self.verbs.body_decoder.decode_unchecked(_SCALE_KIND, request, options, name=route.name)
        except ApiError as error:
            if not route.kind.is_custom or error.code != 400:
                raise
            # The apiextensions server does not name the type that it failed to decode.
            raise failures.bad_request(f"no kind is registered for the type v1.Scale in {SCHEME}") from None
        set_name_and_namespace(ensure_metadata(scale), route.name, route.namespace)
        return scale

    def _decode_patch(
        self, route: Route, request: HttpRequest, options: WriteOptions, old_scale: JsonObject
    ) -> JsonObject:
        body = apply_patch(old_scale, decode_body(request), request, route.kind)
        body_decoder = self.verbs.body_decoder
        scale = body_decoder.decode_patched(
            _SCALE_KIND, body, "patch", options, name=route.name, namespace=route.namespace
        )
        if get_object(scale, "spec").get("replicas") == _MISSING_REPLICAS and route.kind.scale is not None:
            raise failures.bad_request(
                f'the spec replicas field "{route.kind.scale.spec_replicas_path}" cannot be empty'
            )
        return scale


def _check_patched_uid(route: Route, scale: JsonObject, old: StoredObject) -> None:
    uid = ensure_metadata(scale).get("uid")
    if uid and uid != old.uid and not route.kind.is_custom:
        resource = route.kind.resource._replace(plural=f"{route.kind.resource.plural}/scale")
        reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
        raise failures.conflict(resource, route.name, reason)


def _with_replicas(old: StoredObject, kind: ServedKind, replicas: int) -> JsonObject:
    """Return the object of ``old`` with ``replicas``.

    Raises:
        ApiError: 422, ``replicas`` is negative.
    """
    assert kind.scale is not None
    if replicas < 0:
        raise _negative_replicas_error(kind, old.key.name, replicas)
    obj: JsonObject = clone(old.object)
    *parents, last = _path_segments(kind.scale.spec_replicas_path)
    parent = obj
    for name in parents:
        parent = ensure_map(parent, name)
    parent[last] = replicas
    return obj


def _owned_fields(scale: JsonObject) -> JsonObject:
    """Return the fields of a Scale that managers can own. Go omits 0 replicas."""
    replicas = get_object(scale, "spec").get("replicas")
    return {"spec": {"replicas": replicas} if replicas else {}}


def _path_segments(path: str) -> list[str]:
    return path.lstrip(".").split(".")


def _value_at(obj: JsonObject, path: str) -> Any:
    *parents, last = _path_segments(path)
    parent = obj
    for name in parents:
        parent = get_object(parent, name)
    return parent.get(last)


def _scale_of(stored: StoredObject, kind: ServedKind, *, missing: int | None = None) -> JsonObject:
    """Return the ``autoscaling/v1`` Scale of an object.

    Args:
        missing: replicas if a custom resource does not have the field.

    Raises:
        ApiError: 500, the field is missing and ``missing`` is None.
    """
    paths = kind.scale
    assert paths is not None
    replicas = _value_at(stored.object, paths.spec_replicas_path)
    if replicas is None and missing is None:
        raise failures.internal(f'the spec replicas field "{paths.spec_replicas_path}" does not exist')
    spec_replicas = missing if replicas is None else replicas
    meta = stored.object["metadata"]
    status: JsonObject = {"replicas": _value_at(stored.object, paths.status_replicas_path) or 0}
    selector = _value_at(stored.object, paths.label_selector_path) if paths.label_selector_path else None
    if selector:
        status["selector"] = label_selector_text(selector) if is_map(selector) else selector
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": _SCALE_KIND.resource.kind,
        "apiVersion": _SCALE_KIND.resource.api_version,
        "metadata": {n: meta[n] for n in names if n in meta},
        # Go omits 0.
        "spec": {"replicas": spec_replicas} if spec_replicas else {},
        "status": status,
    }


def _encode_scale(stored: StoredObject, kind: ServedKind) -> bytes:
    return msgspec.json.encode(_scale_of(stored, kind))


def _negative_replicas_error(kind: ServedKind, name: str, replicas: int) -> ApiError:
    if kind.is_custom and kind.scale is not None:
        error = invalid_value(kind.scale.spec_replicas_path, replicas, "should be a non-negative integer")
        return failures.invalid(kind.resource, name, [error])
    error: InvalidFieldError = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    return failures.invalid(_SCALE_KIND.resource, name, [error])
