"""The verbs on objects: what each request does, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource, ObjectKey
from steersman.observability.runtime import Runtime
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.apply import apply_configuration
from steersman.testing.apiserver.bodies import How, check_body, decode_body, decode_options
from steersman.testing.apiserver.crds import CRD, check_definition, complete_definition
from steersman.testing.apiserver.failures import invalid_value
from steersman.testing.apiserver.kinds import GroupResource, Kind, KindRegistry
from steersman.testing.apiserver.listing import wants_metadata
from steersman.testing.apiserver.names import generate
from steersman.testing.apiserver.ownership import ManagerKey, Managers, own_changes
from steersman.testing.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from steersman.testing.apiserver.routes import Route
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.strategy import complete, prepare_create, prepare_update, unknown_fields
from steersman.testing.apiserver.typed import check_typed
from steersman.testing.apiserver.values import JsonObject, clone, map_at
from steersman.testing.apiserver.writes import Propagation, Writer

_NAMESPACE = ApiResource("", "v1", "Namespace", "namespaces", False)
FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_NAMESPACES = GroupResource("", "namespaces")
_LONGEST_MANAGER = 128
_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_RETURNS_THE_DELETED = {
    "Pod",
    "Service",
    "ServiceAccount",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the query says about a write."""

    manager: str
    force: bool
    dry_run: bool
    strict: bool

    @staticmethod
    def of(query: Mapping[str, str]) -> WriteOptions:
        dry_run = query.get("dryRun", "")
        if dry_run not in ("", "All"):
            text = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
            raise failures.invalid_options("CreateOptions", "dryRun", text)
        if len(query.get("fieldManager", "")) > _LONGEST_MANAGER:
            text = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
            raise failures.invalid_options("CreateOptions", "fieldManager", text, "FieldValueTooLong")
        return WriteOptions(
            manager=query.get("fieldManager", ""),
            force=query.get("force", "") in ("true", "1"),
            dry_run=dry_run == "All",
            strict=query.get("fieldValidation") == "Strict",
        )


@dataclass(frozen=True, slots=True)
class Verbs:
    """Carries out requests on single objects. Every method raises ApiError as the real server would refuse."""

    storage: Storage
    kinds: KindRegistry
    writer: Writer
    runtime: Runtime

    def get(self, route: Route) -> Stored:
        """The object as it is now."""
        return self._existing(route)

    def create(self, route: Route, request: HttpRequest) -> Stored:
        """A new object from the body."""
        options = WriteOptions.of(request.query)
        kind = route.kind
        if route.name:
            raise failures.method_not_allowed()
        body = self._body(route, decode_body(request), "write", options)
        if body["metadata"].get("resourceVersion"):
            raise failures.untyped("resourceVersion should not be set on objects to be created")
        if not body["metadata"].get("name") and body["metadata"].get("generateName"):
            body["metadata"]["name"] = generate(body["metadata"]["generateName"], self.runtime.random)
        return self._create(kind, body, options, ManagerKey(options.manager or "unknown", "Update"), None)

    def _create(
        self, kind: Kind, body: JsonObject, options: WriteOptions, manager: ManagerKey, managers: Managers | None
    ) -> Stored:
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        if kind.resource.namespaced:
            self._admit_into(kind, namespace, name)
        if kind.resource == CRD:
            complete_definition(body)
        now = self.writer.timestamp()
        obj = prepare_create(kind, body, now=now, random=self.runtime.random)
        if kind.resource == CRD:
            check_definition(obj)
        if self.storage.get(kind.collection, ObjectKey(namespace, name)) is not None:
            raise failures.already_exists(kind.resource, name)
        if managers is None:
            managers = self.own(kind, manager, {}, {}, obj)
        obj = complete(kind, obj, self.runtime.random)
        return self.writer.create(kind, obj, managers, dry_run=options.dry_run)

    def _admit_into(self, kind: Kind, namespace: str, name: str) -> None:
        """The NamespaceLifecycle admission plugin."""
        found = self.storage.get(_NAMESPACES, ObjectKey("", namespace))
        if not namespace:
            raise failures.bad_request("an empty namespace may not be set during creation")
        if found is None:
            raise failures.not_found(_NAMESPACE, namespace)
        if found.is_deleting:
            because = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise failures.forbidden(kind.resource, name, because, [failures.terminating(namespace)])

    def update(self, route: Route, request: HttpRequest) -> Stored:
        """Replaces an object by the body."""
        options = WriteOptions.of(request.query)
        kind = route.kind
        body = self._body(route, decode_body(request), "write", options)
        if kind.create_on_update and self.storage.get(kind.collection, route.key) is None:
            return self._create(kind, body, options, ManagerKey(options.manager or "unknown", "Update"), None)
        old = self._existing(route)
        if uid := body["metadata"].get("uid"):
            self._check_uid(route, old, uid)
        if not body["metadata"].get("resourceVersion") and not kind.unconditional_update:
            error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise failures.invalid(kind.resource, route.name, [error])
        return self._replace(route, old, body, options)

    def patch(self, route: Route, request: HttpRequest) -> Stored:
        """Changes an object by a patch, or applies the body."""
        options = WriteOptions.of(request.query)
        kind = route.kind
        if _media_type(request) == _APPLY:
            return self._apply(route, request, options)
        patch = decode_body(request)
        old = self._existing(route)
        changed = patched(_readable(old, kind), patch, request, kind)
        body = self._body(route, changed, "patch", options)
        self._keep_uid(route, old, body["metadata"])
        return self._replace(route, old, body, options)

    def _body(self, route: Route, body: Any, how: How, options: WriteOptions) -> JsonObject:
        kind = route.kind
        result = check_body(self.kinds, kind, body, how, name=route.name, namespace=route.namespace)
        unknown = unknown_fields(kind, result) if options.strict and how != "apply" else []
        if unknown:
            because = "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)
            if how == "patch":
                raise failures.invalid_patch(body, because)
            resource = kind.resource
            raise failures.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {because}'
            )
        return result

    def _replace(self, route: Route, old: Stored, body: JsonObject, options: WriteOptions) -> Stored:
        kind = route.kind
        self._check_version(route, old, body["metadata"])
        if kind.resource == CRD:
            complete_definition(body)
        obj = prepare_update(kind, old.object, body, route.subresource)
        if kind.resource == CRD:
            check_definition(obj)
        manager = ManagerKey(options.manager or "unknown", "Update", route.subresource, kind.resource.api_version)
        managers = self.own(kind, manager, old.managers, old.object, obj)
        return self.writer.replace(old, obj, managers, dry_run=options.dry_run)

    def own(self, kind: Kind, manager: ManagerKey, managers: Managers, old: JsonObject, new: JsonObject) -> Managers:
        """The managers after ``manager`` wrote ``new`` in place of ``old``."""
        version = kind.resource.api_version
        return own_changes(
            managers,
            manager._replace(api_version=version),
            old,
            new,
            kind.shape,
            api_version=version,
            time=self.writer.timestamp(),
            has_status=kind.has_status,
        )

    def _check_uid(self, route: Route, old: Stored, uid: str) -> None:
        if uid != old.uid:
            resource = route.kind.resource
            key = "/".join(p for p in (resource.group, resource.plural, route.namespace, route.name) if p)
            because = (
                f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
            )
            raise failures.conflict(resource, route.name, because)

    def _keep_uid(self, route: Route, old: Stored, sent: JsonObject) -> None:
        """A patch cannot change the UID; but a custom resource's status takes no notice of it, wrong or not."""
        uid = sent.pop("uid", None)
        if uid and uid != old.uid and not (route.kind.custom and route.subresource == "status"):
            # The real server checks the metadata twice.
            error = invalid_value("metadata.uid", uid, "field is immutable")
            raise failures.invalid(route.kind.resource, route.name, [error, error])

    def _check_version(self, route: Route, old: Stored, sent: JsonObject) -> None:
        version = sent.get("resourceVersion")
        if version and version != str(old.version):
            raise failures.modified(route.kind.resource, route.name)

    def _apply(self, route: Route, request: HttpRequest, options: WriteOptions) -> Stored:
        kind = route.kind
        if not options.manager:
            raise failures.missing_manager()
        sent = decode_body(request)
        config = self._body(route, sent, "apply", options)
        if kind.schema is not None:
            check_typed(kind, sent)
        if config["metadata"].get("managedFields"):
            raise failures.bad_request("metadata.managedFields must be nil")
        old = self.storage.get(kind.collection, route.key)
        if old is None:
            return self._apply_new(route, config, options)
        self._check_version(route, old, config["metadata"])
        config["metadata"].pop("resourceVersion", None)
        identity = {"uid": config["metadata"].pop("uid", None)}
        merged, managers = self._merge(route, old.object, config, old.managers, options)
        self._keep_uid(route, old, identity)
        obj = prepare_update(kind, old.object, merged, route.subresource)
        if kind.resource == CRD:
            check_definition(obj)
        return self.writer.replace(old, obj, managers, dry_run=options.dry_run)

    def _apply_new(self, route: Route, config: JsonObject, options: WriteOptions) -> Stored:
        if route.subresource:
            raise failures.not_found(route.kind.resource, route.name)
        if uid := config["metadata"].get("uid"):
            because = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise failures.conflict(route.kind.resource, route.name, because)
        merged, managers = self._merge(route, {}, config, {}, options)
        key = ManagerKey(options.manager, "Apply")
        return self._create(route.kind, merged, options, key, managers)

    def _merge(
        self, route: Route, live: JsonObject, config: JsonObject, managers: Managers, options: WriteOptions
    ) -> tuple[JsonObject, Managers]:
        kind = route.kind
        config = clone(config)
        if kind.resource == CRD:
            complete_definition(config)
        return apply_configuration(
            live,
            config,
            managers,
            ManagerKey(options.manager, "Apply", route.subresource),
            kind.shape,
            force=options.force,
            api_version=kind.resource.api_version,
            time=self.writer.timestamp(),
            has_status=kind.has_status,
        )

    def delete(self, route: Route, request: HttpRequest) -> tuple[int, bytes]:
        """Deletes an object, or marks it; the answer's code and body."""
        options = decode_options(request)
        old = self._existing(route)
        resource = route.kind.resource
        if resource == _NAMESPACE and route.name in FIRST_NAMESPACES:
            raise failures.forbidden(resource, route.name, "this namespace may not be deleted")
        self.check_preconditions(route, old, options)
        left, gone = self.remove(old, {**request.query, **options})
        if gone and resource.kind not in _RETURNS_THE_DELETED:
            return 200, _deleted_status(route, old)
        return 200, left.encoded(resource.api_version, partial=wants_metadata(request))

    def check_preconditions(self, route: Route, old: Stored, options: JsonObject) -> None:
        """Refuses a deletion whose preconditions do not hold."""
        preconditions = map_at(options, "preconditions")
        for field, name, found in (("UID", "uid", old.uid), ("ResourceVersion", "resourceVersion", str(old.version))):
            wanted = preconditions.get(name)
            if wanted and wanted != found:
                raise failures.precondition_failed(route.kind.resource, route.name, field, wanted, found)

    def remove(self, old: Stored, options: Mapping[str, Any]) -> tuple[Stored, bool]:
        """Deletes ``old`` as the DeleteOptions say."""
        propagation = _propagation(options)
        grace = options.get("gracePeriodSeconds")
        dry_run = options.get("dryRun") in ("All", ["All"])
        return self.writer.delete(old, propagation, grace=None if grace is None else int(grace), dry_run=dry_run)

    def _existing(self, route: Route) -> Stored:
        found = self.storage.get(route.kind.collection, route.key)
        if found is None:
            raise failures.not_found(route.kind.resource, route.name)
        return found


def patched(current: JsonObject, patch: Any, request: HttpRequest, kind: Kind) -> Any:
    """``current`` changed by a patch of the kind that ``request`` names.

    Raises:
        ApiError: the patch does not fit, or is of a kind that ``kind`` does not know.
    """
    match _media_type(request):
        case "application/json-patch+json":
            return json_patch(current, patch)
        case "application/merge-patch+json":
            return merge_patch(current, patch)
        case "application/strategic-merge-patch+json" if not kind.custom:
            return strategic_merge_patch(current, patch, kind.shape)
        case "application/apply-patch+yaml":
            raise failures.refused_here("server-side apply to this subresource")
        case _:
            accepted = (_JSON_PATCH, _MERGE_PATCH, *(() if kind.custom else (_STRATEGIC,)), _APPLY)
            raise failures.unsupported_media_type(accepted)


def _media_type(request: HttpRequest) -> str:
    return request.content_type.partition(";")[0].strip()


def _readable(stored: Stored, kind: Kind) -> JsonObject:
    return {**stored.object, "apiVersion": kind.resource.api_version}


def _propagation(options: Mapping[str, Any]) -> Propagation | None:
    match options.get("propagationPolicy"):
        case None | "":
            return None
        case "Background" | "Foreground" | "Orphan" as policy:
            return policy
        case other:
            supported = 'supported values: "Foreground", "Background", "Orphan", "nil"'
            raise failures.invalid_options(
                "DeleteOptions", "propagationPolicy", f'Unsupported value: "{other}": {supported}'
            )


def _deleted_status(route: Route, old: Stored) -> bytes:
    resource = route.kind.resource
    details: JsonObject = {"name": old.key.name, "kind": resource.plural, "uid": old.uid}
    if resource.group:
        details["group"] = resource.group
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return msgspec.json.encode(answer)
