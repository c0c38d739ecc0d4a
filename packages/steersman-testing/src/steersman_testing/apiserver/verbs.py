"""Verbs on single objects: get, create, update, patch and apply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import AuthorizationAttributes, Authorizer, RequestUser
from steersman_testing.apiserver.access.escalation import EscalationCheck
from steersman_testing.apiserver.admission.allocation import ServiceAllocator
from steersman_testing.apiserver.admission.attributes import admission_attributes
from steersman_testing.apiserver.admission.chain import AdmissionChain, decode_mutated
from steersman_testing.apiserver.admission.configurations import set_configuration_defaults, validate_configuration
from steersman_testing.apiserver.admission.plugins import reject_unsupported_plugins
from steersman_testing.apiserver.admission.webhooks import AdmissionAttributes, AdmissionObjects, AdmissionOperation
from steersman_testing.apiserver.body_decoder import BodyDecoder
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.definitions.crds import CRD, decode_definition, definition_warnings
from steersman_testing.apiserver.definitions.version_conversion import convert_object
from steersman_testing.apiserver.failures import invalid_value
from steersman_testing.apiserver.fields.apply import apply_configuration
from steersman_testing.apiserver.fields.managed_fields import (
    ConvertFunc,
    FieldChange,
    ManagedFields,
    ManagerIdentifier,
    decode_managers_or_live,
    merged_on_read,
    update_ownership,
)
from steersman_testing.apiserver.fields.reconcile_schema import reconcile_with_schema
from steersman_testing.apiserver.fields.typed import describe_object
from steersman_testing.apiserver.kinds import NAMESPACE, NAMESPACES, KindRegistry, ServedKind
from steersman_testing.apiserver.names import generate_name
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.patch_requests import patched_body
from steersman_testing.apiserver.requests import media
from steersman_testing.apiserver.requests.bodies import WriteMethod, decode_for_kind, duplicate_key_error
from steersman_testing.apiserver.requests.parameters import parse_resource_version
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.strategy import (
    canonicalize,
    field_scope,
    prepare_for_create,
    prepare_for_update,
    redecode,
    set_defaults,
    set_server_fields,
    zero_object,
)
from steersman_testing.apiserver.values import JsonObject, clone, get_object, normalize_numbers
from steersman_testing.apiserver.writes import StorageWriter


@dataclass(frozen=True, slots=True)
class Verbs:
    """Handles requests for single objects.

    Each method raises ApiError if the real server rejects the request.
    """

    storage: Storage
    kinds: KindRegistry
    writer: StorageWriter
    runtime: Runtime
    converter: VersionConverter
    authorizer: Authorizer
    admission: AdmissionChain
    body_decoder: BodyDecoder
    allocator: ServiceAllocator

    def get(self, route: Route) -> StoredObject:
        """Return the current object."""
        return self._get_existing(route)

    def create(self, route: Route, request: HttpRequest, user: RequestUser) -> StoredObject:
        """Create an object from the body."""
        options = WriteOptions.of(request, user)
        if route.name:
            raise failures.method_not_allowed()
        body = self._decode_body(route, request, options)
        if _is_resource_version(body["metadata"].get("resourceVersion") or ""):
            raise failures.unclassified_error("resourceVersion should not be set on objects to be created")
        return self._create(route, body, options)

    def _create(
        self, route: Route, body: JsonObject, options: WriteOptions, managers: ManagedFields | None = None
    ) -> StoredObject:
        """Create an object from the decoded ``body``.

        Args:
            managers: managed fields of a server-side apply, whose nulls are kept. None for other requests.
        """
        kind, manager = route.kind, ManagerIdentifier(options.effective_manager, "Update")
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        version = body["metadata"].get("resourceVersion")
        if kind.versions is not None and kind.versions.terminating:
            reason = "create not allowed while custom resource definition is terminating"
            raise failures.forbidden(kind.resource, name, reason)
        if kind.resource.namespaced:
            self._check_namespace(kind, namespace, name)
        set_configuration_defaults(kind, body)
        now, random = self.writer.timestamp(), self.runtime.random
        if self.admission.is_configured:
            from_apply = managers is not None
            if managers is None:
                candidate = prepare_for_create(kind, clone(body), now=now, random=random, validate=False)
                managers = self.update_managers(kind, manager, {}, zero_object(kind), candidate, now=now)
            attributes = admission_attributes(route, "CREATE", options, name)
            body = self._run_mutating_webhooks(attributes, kind, body, managers, None, from_apply=from_apply)
        self._check_escalation(route, options, body)
        _generate_name(body, random)
        obj = prepare_for_create(kind, body, now=now, random=random)
        validate_configuration(kind, obj)
        if managers is None:
            managers = self.update_managers(kind, manager, {}, zero_object(kind), obj, now=now)
        set_server_fields(kind, obj)
        self.allocator.allocate(kind, obj, None)
        reject_unsupported_plugins(self.storage, kind, obj)
        name = obj["metadata"]["name"]
        self._check_create_allowed(route, options)
        self._run_validating_webhooks(route, "CREATE", options, obj, managers, None)
        if self.storage.get(kind.collection, ObjectKey(namespace, name)) is not None:
            raise failures.already_exists(kind.resource, name)
        self._add_warnings(kind, obj, None)
        obj = canonicalize(kind, obj)
        stored = self.converter.to_storage(kind, obj, managers)
        if options.dry_run and version:
            # A dry run stores nothing, so the object keeps the resourceVersion of the body.
            stored = {**stored, "metadata": {**stored["metadata"], "resourceVersion": version}}
        created = self.writer.create(kind, stored, managers, dry_run=options.dry_run)
        return self.converter.from_storage_after_write(kind, created, converted=stored is not obj)

    def store_update(
        self, kind: ServedKind, old: StoredObject, obj: JsonObject, managers: ManagedFields, *, dry_run: bool
    ) -> StoredObject:
        """Store ``obj`` in place of ``old`` and return what clients read.

        Both objects are in the version of ``kind``.
        """
        obj = canonicalize(kind, obj)
        stored = self.converter.to_storage(kind, obj, managers)
        replaced = self.writer.replace(old.storage_form or old, stored, managers, dry_run=dry_run)
        return self.converter.from_storage_after_write(kind, replaced, converted=stored is not obj)

    def _add_warnings(self, kind: ServedKind, obj: JsonObject, old: JsonObject | None) -> None:
        if kind.resource == CRD:
            self.admission.warnings.extend(definition_warnings(obj, old))

    def _check_escalation(
        self, route: Route, options: WriteOptions, obj: JsonObject, old: StoredObject | None = None
    ) -> None:
        escalation = EscalationCheck(self.authorizer, options.user, route.name)
        escalation.check(route.kind, obj, None if old is None else old.object)

    def _check_create_allowed(self, route: Route, options: WriteOptions) -> None:
        """Check the verb create if a PUT or an apply creates."""
        if route.name:
            self.authorizer.check(options.user, AuthorizationAttributes.of("create", route))

    # Admission

    def _run_mutating_webhooks(
        self,
        attributes: AdmissionAttributes,
        kind: ServedKind,
        body: JsonObject,
        managers: ManagedFields,
        old: StoredObject | None,
        *,
        from_apply: bool,
    ) -> JsonObject:
        """Return ``body`` after the mutating webhooks. Their changes have no manager."""
        objects = _admission_objects(kind, set_defaults(kind, clone(body)), managers, old)
        result = self.admission.mutate(attributes, objects, partial(decode_mutated, kind, applied=from_apply))
        return {**result, "metadata": {k: v for k, v in result["metadata"].items() if k != "managedFields"}}

    def _run_validating_webhooks(
        self,
        route: Route,
        operation: AdmissionOperation,
        options: WriteOptions,
        obj: JsonObject,
        managers: ManagedFields,
        old: StoredObject | None,
    ) -> None:
        if self.admission.is_configured:
            attributes = admission_attributes(route, operation, options, obj["metadata"]["name"])
            self.admission.validate(attributes, _admission_objects(route.kind, obj, managers, old))

    def _check_namespace(self, kind: ServedKind, namespace: str, name: str) -> None:
        """Admission plugin NamespaceLifecycle."""
        found = self.storage.get(NAMESPACES, ObjectKey("", namespace))
        if not namespace:
            raise failures.bad_request("an empty namespace may not be set during creation")
        if found is None:
            raise failures.not_found(NAMESPACE, namespace)
        if found.is_deleting:
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise failures.forbidden(kind.resource, name, reason, [failures.namespace_terminating(namespace)])

    def update(self, route: Route, request: HttpRequest, user: RequestUser) -> StoredObject:
        """Replace an object by the body."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        body = self._decode_body(route, request, options)
        if kind.create_on_update and self.storage.get(kind.collection, route.key) is None:
            return self._create(route, body, options)
        old = self._get_existing(route)
        if uid := body["metadata"].get("uid"):
            self.check_uid(route, old, uid)
        return self._replace(route, old, body, options)

    def patch(self, route: Route, request: HttpRequest, user: RequestUser) -> StoredObject:
        """Patch an object, or apply the body server-side."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        if media.media_type(request) == media.APPLY:
            return self._apply(route, request, options)
        patch = decode_for_kind(kind, request)
        old = self._get_existing(route)
        body = patched_body(
            kind, old, patch, request, lambda changed: self._decode_patched(route, changed, "patch", options)
        )
        return self._replace(route, old, body, options)

    def _decode_body(self, route: Route, request: HttpRequest, options: WriteOptions) -> JsonObject:
        return self.body_decoder.decode(route.kind, request, options, name=route.name, namespace=route.namespace)

    def _decode_patched(self, route: Route, body: Any, method: WriteMethod, options: WriteOptions) -> JsonObject:
        return self.body_decoder.decode_patched(
            route.kind, body, method, options, name=route.name, namespace=route.namespace
        )

    def _replace(
        self,
        route: Route,
        old: StoredObject,
        body: JsonObject,
        options: WriteOptions,
        managers: ManagedFields | None = None,
    ) -> StoredObject:
        kind, now = route.kind, self.writer.timestamp()
        set_configuration_defaults(kind, body)
        manager = ManagerIdentifier(options.effective_manager, "Update", route.subresource, kind.resource.api_version)
        previous = (
            merged_on_read(old.managers)
            if route.subresource
            else decode_managers_or_live(body["metadata"], old.managers)
        )
        if self.admission.is_configured:
            from_apply = managers is not None
            if managers is None:
                candidate = prepare_for_update(kind, old.object, clone(body), route.subresource, validate=False)
                managers = self.update_managers(kind, manager, previous, old.object, candidate, now=now)
            attributes = admission_attributes(route, "UPDATE", options, route.name)
            body = self._run_mutating_webhooks(attributes, kind, body, managers, old, from_apply=from_apply)
        self.check_resource_version(route, old, body["metadata"])
        self._check_unconditional_update(route, body["metadata"])
        self._check_uid_unchanged(route, old, body["metadata"])
        self._check_escalation(route, options, body, old)
        obj = prepare_for_update(kind, old.object, body, route.subresource)
        validate_configuration(kind, obj)
        if managers is None:
            managers = self.update_managers(kind, manager, previous, old.object, obj, now=now)
        self.allocator.allocate(kind, obj, old)
        self._run_validating_webhooks(route, "UPDATE", options, obj, managers, old)
        self._add_warnings(kind, obj, old.object)
        return self.store_update(kind, old, obj, managers, dry_run=options.dry_run)

    def update_managers(
        self,
        kind: ServedKind,
        manager: ManagerIdentifier,
        managers: ManagedFields,
        old: JsonObject,
        new: JsonObject,
        *,
        now: str,
    ) -> ManagedFields:
        """Return the managed fields after ``manager`` replaced ``old`` by ``new``."""
        if not managers and "uid" in old.get("metadata", {}):
            # Updates do not start to track fields if nothing is tracked. Source: skipNonApplied of apimachinery's
            # managedfields.
            return managers
        try:
            return self._update_managers(kind, manager, managers, old, new, now)
        except ApiError:
            # An object that does not fit the version of a manager loses all managers. Source: UpdateNoErrors of
            # apimachinery.
            return {}

    def _update_managers(
        self,
        kind: ServedKind,
        manager: ManagerIdentifier,
        managers: ManagedFields,
        old: JsonObject,
        new: JsonObject,
        now: str,
    ) -> ManagedFields:
        version = kind.resource.api_version
        return update_ownership(
            _managers_for_kind(kind, managers),
            manager._replace(api_version=version),
            FieldChange(old, new, kind.shape, version, self._version_converter(kind, managers)),
            time=now,
            scope=field_scope(kind, manager.subresource),
        )

    def _version_converter(self, kind: ServedKind, managers: ManagedFields) -> ConvertFunc | None:
        """Return a function that converts an object to another API version.

        Fields are compared in the version in which each manager wrote them. None if no conversion is needed: the kind
        is built in, or all ``managers`` wrote in the version of ``kind``.
        """
        if (
            not managers
            or kind.versions is None
            or all(o.api_version == kind.resource.api_version for o in managers.values())
        ):
            return None
        return partial(convert_object, self.converter, kind)

    def check_uid(self, route: Route, old: StoredObject, uid: str) -> None:
        """Reject a ``uid`` other than that of ``old``."""
        if uid != old.uid:
            resource = route.kind.resource
            group = resource.group if route.kind.is_custom else ""
            key = "/".join(p for p in (group, resource.plural, route.namespace, route.name) if p)
            reason = (
                f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
            )
            raise failures.conflict(resource, route.name, reason)

    def _check_uid_unchanged(self, route: Route, old: StoredObject, metadata: JsonObject) -> None:
        """Reject a patch that changes the UID.

        The status of a custom resource ignores the UID.
        """
        uid = metadata.get("uid")
        if uid and uid != old.uid and not (route.kind.is_custom and route.subresource == "status"):
            # The real server validates the metadata twice and reports the error twice.
            error = invalid_value("metadata.uid", uid, "field is immutable")
            raise failures.invalid(route.kind.resource, route.name, [error, error])

    def check_resource_version(self, route: Route, old: StoredObject, metadata: JsonObject) -> None:
        """Reject metadata with the resourceVersion of another version than ``old``."""
        try:
            version = parse_resource_version(metadata.get("resourceVersion") or "")
        except ValueError as error:
            raise failures.unclassified_error(str(error)) from None
        if version not in (0, old.version):
            raise failures.object_modified(route.kind.resource, route.name)

    def _check_unconditional_update(self, route: Route, metadata: JsonObject) -> None:
        kind = route.kind
        if kind.unconditional_update or parse_resource_version(metadata.get("resourceVersion") or ""):
            return
        error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        # The message has the plural of custom resources in place of the kind.
        resource = kind.resource._replace(kind=kind.resource.plural) if kind.is_custom else kind.resource
        raise failures.invalid(resource, route.name, [error])

    def _apply(self, route: Route, request: HttpRequest, options: WriteOptions) -> StoredObject:
        kind = route.kind
        if not options.manager:
            raise failures.missing_manager()
        configuration = decode_for_kind(kind, request)
        if options.strict and (duplicates := duplicate_key_error(request.body or b"")):
            raise failures.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {duplicates}")
        normalize_numbers(configuration)
        config = self._decode_patched(route, configuration, "apply", options)
        if config["metadata"].get("managedFields"):
            raise failures.bad_request("metadata.managedFields must be nil")
        old = self.storage.get(kind.collection, route.key)
        if old is None:
            if not get_object(configuration, "metadata").get("name"):
                raise failures.missing_name(route.name)
            return self._create_by_apply(route, config, options)
        old = self.converter.from_storage(kind, old)
        merged, managers = self._merge(route, old.object, config, self._managers_for_apply(route, old), options)
        return self._replace(route, old, merged, options, managers)

    def _managers_for_apply(self, route: Route, old: StoredObject) -> ManagedFields:
        """Return the managed fields that a server-side apply starts from.

        Without managers, the manager ``before-first-apply`` owns all fields.
        """
        if old.managers:
            return merged_on_read(old.managers)
        manager = ManagerIdentifier("before-first-apply", "Update", route.subresource)
        try:
            return self._update_managers(
                route.kind, manager, {}, zero_object(route.kind), old.object, self.writer.timestamp()
            )
        except ApiError as error:
            reason = f"failed to convert new object ({describe_object(route.kind, old.object)}) to smd typed: {error}"
            raise failures.unclassified_error(f"failed to create manager for existing fields: {reason}") from error

    def _create_by_apply(self, route: Route, config: JsonObject, options: WriteOptions) -> StoredObject:
        if route.subresource:
            raise failures.not_found(route.kind.resource, route.name)
        if config["metadata"].get("deletionTimestamp"):
            # The object would start with a deletionTimestamp.
            raise failures.not_implemented("a deletionTimestamp that is applied to a new object")
        if uid := config["metadata"].get("uid"):
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise failures.conflict(route.kind.resource, route.name, reason)
        merged, managers = self._merge(route, {}, config, {}, options)
        return self._create(route, merged, options, managers)

    def _merge(
        self, route: Route, live: JsonObject, config: JsonObject, managers: ManagedFields, options: WriteOptions
    ) -> tuple[JsonObject, ManagedFields]:
        kind = route.kind
        config = clone(config)
        _decode_configuration(kind, config)
        merged, managers = apply_configuration(
            live,
            config,
            _managers_for_kind(kind, managers),
            ManagerIdentifier(options.manager, "Apply", route.subresource),
            kind.shape,
            force=options.force,
            api_version=kind.resource.api_version,
            time=self.writer.timestamp(),
            scope=field_scope(kind, route.subresource),
            convert=self._version_converter(kind, managers),
        )
        return redecode(kind, merged, from_apply=True), managers

    def _get_existing(self, route: Route) -> StoredObject:
        found = self.storage.get(route.kind.collection, route.key)
        if found is None:
            raise failures.not_found(route.kind.resource, route.name)
        return self.converter.from_storage(route.kind, found)


def _decode_configuration(kind: ServedKind, obj: JsonObject) -> None:
    """Set the defaults of CRDs and webhook configurations."""
    if kind.resource == CRD:
        decode_definition(obj)
    set_configuration_defaults(kind, obj)


def _managers_for_kind(kind: ServedKind, managers: ManagedFields) -> ManagedFields:
    """Return ``managers`` as a write to ``kind`` sees them.

    Custom resources reconcile them with the current schema. Events keep those of their API group.
    """
    if not managers or (kind.storage_collection is None and not kind.is_custom):
        return managers
    if kind.is_custom:
        return reconcile_with_schema(managers, kind)
    return {k: entry for k, entry in managers.items() if entry.api_version == kind.resource.api_version}


def _is_resource_version(text: str) -> bool:
    """Return True if ``text`` is a resourceVersion.

    Creates ignore invalid ones.
    """
    try:
        return parse_resource_version(text) > 0
    except ValueError:
        return False


def _generate_name(body: JsonObject, random: Random) -> None:
    meta = body["metadata"]
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generate_name(meta["generateName"], random)


def _admission_objects(
    kind: ServedKind, obj: JsonObject, managers: ManagedFields, old: StoredObject | None
) -> AdmissionObjects:
    """Return the admission objects in wire form, as clients read them."""
    new = StoredObject(kind.collection, ObjectKey("", ""), obj, managers, 0)
    return AdmissionObjects(_to_wire(kind, new), None if old is None else _to_wire(kind, old))


def _to_wire(kind: ServedKind, stored: StoredObject) -> JsonObject:
    return stored.to_wire(kind.resource.api_version)
