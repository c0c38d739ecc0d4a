"""The verbs on objects: what each request does, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey
from steersman.observability.runtime import Runtime
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.admission import Admission, read_as
from steersman.testing.apiserver.apply import apply_configuration
from steersman.testing.apiserver.authorization import Attributes, Authorizer, User
from steersman.testing.apiserver.bodies import How, check_body, decode_body, repeated_fields
from steersman.testing.apiserver.conversion import Conversion
from steersman.testing.apiserver.crds import CRD, complete_definition, definition_warnings
from steersman.testing.apiserver.embedded import metadata_mismatch, undecodable
from steersman.testing.apiserver.escalation import Escalation
from steersman.testing.apiserver.failures import invalid_value
from steersman.testing.apiserver.go_values import WrongType
from steersman.testing.apiserver.kinds import GroupResource, Kind, KindRegistry
from steersman.testing.apiserver.names import generate
from steersman.testing.apiserver.negotiation import wants_metadata
from steersman.testing.apiserver.options import WriteOptions, delete_options
from steersman.testing.apiserver.ownership import UNNAMED, ManagerKey, Managers, own_changes, sent_managers
from steersman.testing.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from steersman.testing.apiserver.plugins import check_plugins
from steersman.testing.apiserver.routes import Route
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.strategy import (
    blank,
    complete,
    decoded,
    prepare_create,
    prepare_update,
    unknown_fields,
)
from steersman.testing.apiserver.typed import check_typed
from steersman.testing.apiserver.values import JsonObject, clone, map_at
from steersman.testing.apiserver.webhook_configurations import check_configuration, complete_configuration
from steersman.testing.apiserver.webhooks import Attempt, Change, Operation
from steersman.testing.apiserver.writes import Propagation, Writer

_NAMESPACE = ApiResource("", "v1", "Namespace", "namespaces", False)
FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_NAMESPACES = GroupResource("", "namespaces")
_DELETE_OPTIONS = ("gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy")
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
class Verbs:
    """Carries out requests on single objects. Every method raises ApiError as the real server would refuse."""

    storage: Storage
    kinds: KindRegistry
    writer: Writer
    runtime: Runtime
    conversion: Conversion
    authorizer: Authorizer
    admission: Admission

    def get(self, route: Route) -> Stored:
        """The object as it is now."""
        return self._existing(route)

    def create(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """A new object from the body."""
        options = WriteOptions.of(request, user)
        if route.name:
            raise failures.method_not_allowed()
        body = self._sent(route, request, options)
        if body["metadata"].get("resourceVersion"):
            raise failures.untyped("resourceVersion should not be set on objects to be created")
        return self._create(route, body, options, ManagerKey(options.manager or UNNAMED, "Update"), None)

    def _create(
        self, route: Route, body: JsonObject, options: WriteOptions, manager: ManagerKey, managers: Managers | None
    ) -> Stored:
        kind = route.kind
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        if kind.resource.namespaced:
            self._admit_into(kind, namespace, name)
        _complete(kind, body)
        now, random = self.writer.timestamp(), self.runtime.random
        attempt = attempt_of(route, "CREATE", options, name)
        if self.admission.is_configured:
            if managers is None:
                draft = prepare_create(kind, body, now=now, random=random, check=False)
                managers = self.own(kind, manager, {}, blank(kind), draft)
            body = self._mutated(attempt, kind, body, managers, None)
        self._check_escalation(route, options, body)
        _choose_name(body, random)
        obj = prepare_create(kind, body, now=now, random=random)
        check_configuration(kind, obj)
        if kind.versions is not None and kind.versions.terminating:
            because = "create not allowed while custom resource definition is terminating"
            raise failures.forbidden(kind.resource, name, because)
        if managers is None:
            managers = self.own(kind, manager, {}, blank(kind), obj)
        obj = complete(kind, obj, random)
        check_plugins(self.storage, kind, obj)
        name = obj["metadata"]["name"]
        self._check_creation(route, options)
        self._validate(replace(attempt, name=name), kind, obj, managers, None)
        if self.storage.get(kind.collection, ObjectKey(namespace, name)) is not None:
            raise failures.already_exists(kind.resource, name)
        self._warn(kind, obj, None)
        kept = self.conversion.write(kind, obj, managers)
        created = self.writer.create(kind, kept, managers, dry_run=options.dry_run)
        return self.conversion.read_back(kind, created, converted=kept is not obj)

    def keep(self, kind: Kind, old: Stored, obj: JsonObject, managers: Managers, *, dry_run: bool) -> Stored:
        """Stores ``obj`` in place of ``old``, both in the version of ``kind``, and returns it as it is read then."""
        kept = self.conversion.write(kind, obj, managers)
        replaced = self.writer.replace(old.origin or old, kept, managers, dry_run=dry_run)
        return self.conversion.read_back(kind, replaced, converted=kept is not obj)

    def _warn(self, kind: Kind, obj: JsonObject, old: JsonObject | None) -> None:
        if kind.resource == CRD:
            self.admission.warnings.extend(definition_warnings(obj, old))

    def _check_escalation(
        self, route: Route, options: WriteOptions, obj: JsonObject, old: Stored | None = None
    ) -> None:
        escalation = Escalation(self.authorizer, options.user, route.name)
        escalation.check(route.kind, obj, None if old is None else old.object)

    def _check_creation(self, route: Route, options: WriteOptions) -> None:
        """Who creates by PUT or apply must be allowed to create, which the request's verb does not tell."""
        if route.name:
            resource = route.kind.resource
            names = (resource.group, resource.version, resource.plural, "", route.namespace, route.name)
            self.authorizer.check(options.user, Attributes("create", *names))

    # Admission

    def _mutated(
        self, attempt: Attempt, kind: Kind, body: JsonObject, managers: Managers, old: Stored | None
    ) -> JsonObject:
        """``body`` as the mutating webhooks leave it. What they set belongs to no manager."""
        change = Change(_shown(kind, decoded(kind, body), managers), _read(kind, old))
        result = self.admission.mutate(attempt, change, partial(read_as, kind))
        return {**result, "metadata": {k: v for k, v in result["metadata"].items() if k != "managedFields"}}

    def _validate(
        self, attempt: Attempt, kind: Kind, obj: JsonObject, managers: Managers, old: Stored | None
    ) -> None:
        if self.admission.is_configured:
            self.admission.validate(attempt, Change(_shown(kind, obj, managers), _read(kind, old)))

    def admit_deletion(self, route: Route, old: Stored, options: JsonObject, user: User) -> None:
        """Asks the webhooks about a deletion."""
        if not self.admission.is_configured:
            return
        told = {k: options[k] for k in _DELETE_OPTIONS if options.get(k) is not None}
        dry_run = bool(options.get("dryRun"))
        if dry_run:
            told["dryRun"] = ["All"]
        if route.kind.resource == _NAMESPACE:
            told.setdefault("preconditions", {"uid": old.uid})
        attempt = Attempt(
            "DELETE", route.kind.resource, "", _place(route, route.name), route.name, user, dry_run, told
        )
        change = Change(None, _read(route.kind, old))
        self.admission.mutate_deletion(attempt, change)
        self.admission.validate(attempt, change)

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

    def update(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """Replaces an object by the body."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        body = self._sent(route, request, options)
        if kind.create_on_update and self.storage.get(kind.collection, route.key) is None:
            return self._create(route, body, options, ManagerKey(options.manager or UNNAMED, "Update"), None)
        old = self._existing(route)
        if uid := body["metadata"].get("uid"):
            self._check_uid(route, old, uid)
        if not body["metadata"].get("resourceVersion") and not kind.unconditional_update:
            error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            # What is custom is named by its plural here.
            resource = kind.resource._replace(kind=kind.resource.plural) if kind.custom else kind.resource
            raise failures.invalid(resource, route.name, [error])
        return self._replace(route, old, body, options)

    def patch(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """Changes an object by a patch, or applies the body."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        if _media_type(request) == _APPLY:
            return self._apply(route, request, options)
        patch = decode_body(request)
        old = self._existing(route)
        changed = patched(_readable(old, kind), patch, request, kind)
        body = self._body(route, changed, "patch", options)
        self._keep_uid(route, old, body["metadata"])
        return self._replace(route, old, body, options)

    def _sent(self, route: Route, request: HttpRequest, options: WriteOptions) -> JsonObject:
        """The body of a POST or a PUT."""
        repeated = repeated_fields(request) if options.validation != "Ignore" else ()
        return self._body(route, decode_body(request), "write", options, repeated)

    def _body(
        self, route: Route, body: Any, how: How, options: WriteOptions, repeated: Sequence[str] = ()
    ) -> JsonObject:
        kind = route.kind
        result = check_body(self.kinds, kind, body, how, name=route.name, namespace=route.namespace)
        if kind.custom and how != "apply" and (problem := undecodable(result["metadata"])):
            raise _undecodable(kind, body, how, problem)
        if kind.schema is not None and (wrong := metadata_mismatch(result, kind.schema)):
            raise _undecodable(kind, body, how, f"{wrong[0].path}: {wrong[0].text}")
        if how == "apply" or (options.validation == "Ignore" and kind.schema is not None):
            return result
        try:
            unknown = unknown_fields(kind, result)
        except WrongType as error:
            raise _undecodable(kind, body, how, str(error)) from None
        found = [*(f'duplicate field "{p}"' for p in repeated), *(f'unknown field "{p}"' for p in unknown)]
        if options.strict and found:
            raise _undecodable(kind, body, how, "strict decoding error: " + ", ".join(found))
        if options.validation != "Ignore":
            self.admission.warnings.extend(found)
        return result

    def _replace(
        self,
        route: Route,
        old: Stored,
        body: JsonObject,
        options: WriteOptions,
        managers: Managers | None = None,
    ) -> Stored:
        kind = route.kind
        _complete(kind, body)
        manager = ManagerKey(options.manager or UNNAMED, "Update", route.subresource, kind.resource.api_version)
        former = old.managers if route.subresource else sent_managers(body["metadata"], old.managers)
        attempt = attempt_of(route, "UPDATE", options, route.name)
        if self.admission.is_configured:
            if managers is None:
                draft = prepare_update(kind, old.object, body, route.subresource, check=False)
                managers = self.own(kind, manager, former, old.object, draft)
            body = self._mutated(attempt, kind, body, managers, old)
        self._check_version(route, old, body["metadata"])
        self._check_escalation(route, options, body, old)
        obj = prepare_update(kind, old.object, body, route.subresource)
        check_configuration(kind, obj)
        if managers is None:
            managers = self.own(kind, manager, former, old.object, obj)
        self._validate(attempt, kind, obj, managers, old)
        self._warn(kind, obj, old.object)
        return self.keep(kind, old, obj, managers, dry_run=options.dry_run)

    def own(self, kind: Kind, manager: ManagerKey, managers: Managers, old: JsonObject, new: JsonObject) -> Managers:
        """The managers after ``manager`` wrote ``new`` in place of ``old``."""
        version = kind.resource.api_version
        if not managers and "uid" in old.get("metadata", {}):
            # Where nothing is tracked, updates do not begin to: see skipNonApplied in apimachinery's managedfields.
            return managers
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
        uid = sent.get("uid")
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
        check_typed(kind, sent)
        if config["metadata"].get("managedFields"):
            raise failures.bad_request("metadata.managedFields must be nil")
        old = self.storage.get(kind.collection, route.key)
        if old is None:
            return self._apply_new(route, config, options)
        old = self.conversion.read(kind, old)
        self._check_version(route, old, config["metadata"])
        config["metadata"].pop("resourceVersion", None)
        identity = {"uid": config["metadata"].pop("uid", None)}
        merged, managers = self._merge(route, old.object, config, self._tracked(kind, old), options)
        self._keep_uid(route, old, identity)
        return self._replace(route, old, merged, options, managers)

    def _tracked(self, kind: Kind, old: Stored) -> Managers:
        """The managers for an apply: where nobody is known, all there is was somebody's before the first apply."""
        if old.managers:
            return old.managers
        return self.own(kind, ManagerKey("before-first-apply", "Update"), {}, blank(kind), old.object)

    def _apply_new(self, route: Route, config: JsonObject, options: WriteOptions) -> Stored:
        if route.subresource:
            raise failures.not_found(route.kind.resource, route.name)
        if uid := config["metadata"].get("uid"):
            because = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise failures.conflict(route.kind.resource, route.name, because)
        merged, managers = self._merge(route, {}, config, {}, options)
        key = ManagerKey(options.manager, "Apply")
        return self._create(route, merged, options, key, managers)

    def _merge(
        self, route: Route, live: JsonObject, config: JsonObject, managers: Managers, options: WriteOptions
    ) -> tuple[JsonObject, Managers]:
        kind = route.kind
        config = clone(config)
        _complete(kind, config)
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

    def delete(self, route: Route, request: HttpRequest, user: User) -> tuple[int, bytes]:
        """Deletes an object, or marks it; the answer's code and body."""
        options = delete_options(request)
        old = self._existing(route)
        resource = route.kind.resource
        if resource == _NAMESPACE and route.name in FIRST_NAMESPACES:
            raise failures.forbidden(resource, route.name, "this namespace may not be deleted")
        self.check_preconditions(route, old, options)
        self.admit_deletion(route, old, options, user)
        if route.kind.versions is not None:
            # What will be left is converted before anything is stored, since that may take a webhook.
            self.conversion.read(route.kind, self.remove(old, {**options, "dryRun": "All"})[0])
        left, gone = self.remove(old, options)
        if gone and (route.kind.custom or resource.kind not in _RETURNS_THE_DELETED):
            return 200, _deleted_status(route, old)
        left = self.conversion.read(route.kind, left)
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
        propagation: Propagation | None = options.get("propagationPolicy") or None
        grace = options.get("gracePeriodSeconds")
        dry_run = bool(options.get("dryRun"))
        seconds = None if grace is None else int(grace)
        return self.writer.delete(old.origin or old, propagation, grace=seconds, dry_run=dry_run)

    def _existing(self, route: Route) -> Stored:
        found = self.storage.get(route.kind.collection, route.key)
        if found is None:
            raise failures.not_found(route.kind.resource, route.name)
        return self.conversion.read(route.kind, found)


def _complete(kind: Kind, obj: JsonObject) -> None:
    """Fills in what the server decides of what configures the server itself."""
    if kind.resource == CRD:
        complete_definition(obj)
    complete_configuration(kind, obj)


def _choose_name(body: JsonObject, random: Random) -> None:
    meta = body["metadata"]
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generate(meta["generateName"], random)


def attempt_of(
    route: Route, operation: Operation, options: WriteOptions, name: str, sent: ApiResource | None = None
) -> Attempt:
    """The write of an object called ``name``; for ``sent`` see ``Attempt``."""
    resource, where = route.kind.resource, _place(route, name)
    told = options.wire()
    return Attempt(operation, resource, route.subresource, where, name, options.user, options.dry_run, told, sent)


def _place(route: Route, name: str) -> str:
    """The namespace of an operation; a Namespace is in itself."""
    return name if route.kind.resource == _NAMESPACE else route.namespace


def _shown(kind: Kind, obj: JsonObject, managers: Managers) -> JsonObject:
    """``obj`` as a client would read it."""
    return Stored(kind.collection, ObjectKey("", ""), obj, managers, 0).rendered(kind.resource.api_version)


def _read(kind: Kind, stored: Stored | None) -> JsonObject | None:
    return None if stored is None else stored.rendered(kind.resource.api_version)


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


def _undecodable(kind: Kind, body: Any, how: How, because: str) -> ApiError:
    if how == "patch":
        return failures.invalid_patch(body, because)
    named = kind.resource.kind
    return failures.bad_request(
        f'{named} in version "{kind.resource.version}" cannot be handled as a {named}: {because}'
    )


def _media_type(request: HttpRequest) -> str:
    return request.content_type.partition(";")[0].strip()


def _readable(stored: Stored, kind: Kind) -> JsonObject:
    return stored.rendered(kind.resource.api_version)


def _deleted_status(route: Route, old: Stored) -> bytes:
    resource = route.kind.resource
    details: JsonObject = {"name": old.key.name, "kind": resource.plural, "uid": old.uid}
    if resource.group:
        details["group"] = resource.group
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return msgspec.json.encode(answer)
