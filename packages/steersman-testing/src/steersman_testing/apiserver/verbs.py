"""The verbs on objects: what each request does, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import Attributes, Authorizer, User
from steersman_testing.apiserver.access.escalation import Escalation
from steersman_testing.apiserver.admission.allocation import Allocator
from steersman_testing.apiserver.admission.chain import Admission, read_as
from steersman_testing.apiserver.admission.configurations import check_configuration, complete_configuration
from steersman_testing.apiserver.admission.plugins import check_plugins
from steersman_testing.apiserver.admission.webhooks import Attempt, Change, Operation
from steersman_testing.apiserver.definitions.conversion import Conversion
from steersman_testing.apiserver.definitions.crds import CRD, complete_definition, definition_warnings
from steersman_testing.apiserver.definitions.translation import translated
from steersman_testing.apiserver.failures import invalid_value
from steersman_testing.apiserver.fields.apply import apply_configuration
from steersman_testing.apiserver.fields.ownership import (
    FieldChange,
    ManagerKey,
    Managers,
    Translate,
    as_read,
    own_changes,
    sent_managers,
)
from steersman_testing.apiserver.fields.patches import json_patch, merge_patch, strategic_merge_patch
from steersman_testing.apiserver.fields.reconciled import reconciled
from steersman_testing.apiserver.fields.typed import named
from steersman_testing.apiserver.incoming import Incoming
from steersman_testing.apiserver.kinds import NAMESPACE, NAMESPACES, Kind, KindRegistry
from steersman_testing.apiserver.names import generate
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests import media
from steersman_testing.apiserver.requests.bodies import How, repeated_keys, sent_to
from steersman_testing.apiserver.requests.parameters import parse_version
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.strategy import (
    blank,
    complete,
    decoded,
    kept,
    prepare_create,
    prepare_update,
    reach_of,
    reread,
)
from steersman_testing.apiserver.values import JsonObject, clone, map_at, write_whole_numbers
from steersman_testing.apiserver.writes import Writer


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
    incoming: Incoming
    allocator: Allocator

    def get(self, route: Route) -> Stored:
        """The object as it is now."""
        return self._existing(route)

    def create(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """A new object from the body."""
        options = WriteOptions.of(request, user)
        if route.name:
            raise failures.method_not_allowed()
        body = self._sent(route, request, options)
        if _is_version(body["metadata"].get("resourceVersion") or ""):
            raise failures.untyped("resourceVersion should not be set on objects to be created")
        return self._create(route, body, options)

    def _create(
        self, route: Route, body: JsonObject, options: WriteOptions, managers: Managers | None = None
    ) -> Stored:
        """A new object of ``body``, which is conformed; ``managers`` are those of an apply, which keeps its nulls."""
        kind, manager = route.kind, ManagerKey(options.writer, "Update")
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        version = body["metadata"].get("resourceVersion")
        if kind.versions is not None and kind.versions.terminating:
            because = "create not allowed while custom resource definition is terminating"
            raise failures.forbidden(kind.resource, name, because)
        if kind.resource.namespaced:
            self._admit_into(kind, namespace, name)
        complete_configuration(kind, body)
        now, random = self.writer.timestamp(), self.runtime.random
        if self.admission.is_configured:
            applied = managers is not None
            if managers is None:
                draft = prepare_create(kind, clone(body), now=now, random=random, check=False)
                managers = self.own(kind, manager, {}, blank(kind), draft, now=now)
            attempt = attempt_of(route, "CREATE", options, name)
            body = self._mutated(attempt, kind, body, managers, None, applied=applied)
        self._check_escalation(route, options, body)
        _choose_name(body, random)
        obj = prepare_create(kind, body, now=now, random=random)
        check_configuration(kind, obj)
        if managers is None:
            managers = self.own(kind, manager, {}, blank(kind), obj, now=now)
        complete(kind, obj)
        self.allocator.allocate(kind, obj, None)
        check_plugins(self.storage, kind, obj)
        name = obj["metadata"]["name"]
        self._check_creation(route, options)
        self._validate(route, "CREATE", options, obj, managers, None)
        if self.storage.get(kind.collection, ObjectKey(namespace, name)) is not None:
            raise failures.already_exists(kind.resource, name)
        self._warn(kind, obj, None)
        obj = kept(kind, obj)
        written = self.conversion.write(kind, obj, managers)
        if options.dry_run and version:
            # Nothing is stored that would get another.
            written = {**written, "metadata": {**written["metadata"], "resourceVersion": version}}
        created = self.writer.create(kind, written, managers, dry_run=options.dry_run)
        return self.conversion.read_back(kind, created, converted=written is not obj)

    def keep(self, kind: Kind, old: Stored, obj: JsonObject, managers: Managers, *, dry_run: bool) -> Stored:
        """Stores ``obj`` in place of ``old``, both in the version of ``kind``, and returns it as it is read then."""
        obj = kept(kind, obj)
        written = self.conversion.write(kind, obj, managers)
        replaced = self.writer.replace(old.origin or old, written, managers, dry_run=dry_run)
        return self.conversion.read_back(kind, replaced, converted=written is not obj)

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
            self.authorizer.check(options.user, Attributes.of("create", route))

    # Admission

    def _mutated(
        self,
        attempt: Attempt,
        kind: Kind,
        body: JsonObject,
        managers: Managers,
        old: Stored | None,
        *,
        applied: bool,
    ) -> JsonObject:
        """``body`` as the mutating webhooks leave it. What they set belongs to no manager."""
        change = _change(kind, decoded(kind, clone(body)), managers, old)
        result = self.admission.mutate(attempt, change, partial(read_as, kind, applied=applied))
        return {**result, "metadata": {k: v for k, v in result["metadata"].items() if k != "managedFields"}}

    def _validate(
        self,
        route: Route,
        operation: Operation,
        options: WriteOptions,
        obj: JsonObject,
        managers: Managers,
        old: Stored | None,
    ) -> None:
        if self.admission.is_configured:
            attempt = attempt_of(route, operation, options, obj["metadata"]["name"])
            self.admission.validate(attempt, _change(route.kind, obj, managers, old))

    def _admit_into(self, kind: Kind, namespace: str, name: str) -> None:
        """The NamespaceLifecycle admission plugin."""
        found = self.storage.get(NAMESPACES, ObjectKey("", namespace))
        if not namespace:
            raise failures.bad_request("an empty namespace may not be set during creation")
        if found is None:
            raise failures.not_found(NAMESPACE, namespace)
        if found.is_deleting:
            because = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise failures.forbidden(kind.resource, name, because, [failures.terminating(namespace)])

    def update(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """Replaces an object by the body."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        body = self._sent(route, request, options)
        if kind.create_on_update and self.storage.get(kind.collection, route.key) is None:
            return self._create(route, body, options)
        old = self._existing(route)
        if uid := body["metadata"].get("uid"):
            self.check_uid(route, old, uid)
        return self._replace(route, old, body, options)

    def patch(self, route: Route, request: HttpRequest, user: User) -> Stored:
        """Changes an object by a patch, or applies the body."""
        options = WriteOptions.of(request, user)
        kind = route.kind
        if media.media_type(request) == media.APPLY:
            return self._apply(route, request, options)
        patch = sent_to(kind, request)
        old = self._existing(route)
        changed = patched(_read(kind, old), patch, request, kind)
        body = self._body(route, changed, "patch", options)
        return self._replace(route, old, body, options)

    def _sent(self, route: Route, request: HttpRequest, options: WriteOptions) -> JsonObject:
        """The body of a POST or a PUT."""
        return self.incoming.sent(route.kind, request, options, name=route.name, namespace=route.namespace)

    def _body(self, route: Route, body: Any, how: How, options: WriteOptions) -> JsonObject:
        return self.incoming.read(route.kind, body, how, options, name=route.name, namespace=route.namespace)

    def _replace(
        self,
        route: Route,
        old: Stored,
        body: JsonObject,
        options: WriteOptions,
        managers: Managers | None = None,
    ) -> Stored:
        kind, now = route.kind, self.writer.timestamp()
        complete_configuration(kind, body)
        manager = ManagerKey(options.writer, "Update", route.subresource, kind.resource.api_version)
        former = as_read(old.managers) if route.subresource else sent_managers(body["metadata"], old.managers)
        if self.admission.is_configured:
            applied = managers is not None
            if managers is None:
                draft = prepare_update(kind, old.object, clone(body), route.subresource, check=False)
                managers = self.own(kind, manager, former, old.object, draft, now=now)
            attempt = attempt_of(route, "UPDATE", options, route.name)
            body = self._mutated(attempt, kind, body, managers, old, applied=applied)
        self.check_sent_version(route, old, body["metadata"])
        self._check_unconditional(route, body["metadata"])
        self._keep_uid(route, old, body["metadata"])
        self._check_escalation(route, options, body, old)
        obj = prepare_update(kind, old.object, body, route.subresource)
        check_configuration(kind, obj)
        if managers is None:
            managers = self.own(kind, manager, former, old.object, obj, now=now)
        self.allocator.allocate(kind, obj, old)
        self._validate(route, "UPDATE", options, obj, managers, old)
        self._warn(kind, obj, old.object)
        return self.keep(kind, old, obj, managers, dry_run=options.dry_run)

    def own(
        self, kind: Kind, manager: ManagerKey, managers: Managers, old: JsonObject, new: JsonObject, *, now: str
    ) -> Managers:
        """The managers after ``manager`` wrote ``new`` in place of ``old``."""
        if not managers and "uid" in old.get("metadata", {}):
            # Where nothing is tracked, updates do not begin to: see skipNonApplied in apimachinery's managedfields.
            return managers
        try:
            return self._own(kind, manager, managers, old, new, now)
        except ApiError:
            # What does not fit a version that somebody wrote in has no managers: UpdateNoErrors, as above.
            return {}

    def _own(
        self, kind: Kind, manager: ManagerKey, managers: Managers, old: JsonObject, new: JsonObject, now: str
    ) -> Managers:
        version = kind.resource.api_version
        return own_changes(
            _fitting(kind, managers),
            manager._replace(api_version=version),
            FieldChange(old, new, kind.shape, version, self._translation(kind, managers)),
            time=now,
            reach=reach_of(kind, manager.subresource),
        )

    def _translation(self, kind: Kind, managers: Managers) -> Translate | None:
        """How objects of ``kind`` are read in the versions of ``managers``; None where all wrote in its own."""
        if (
            not managers
            or kind.versions is None
            or all(o.api_version == kind.resource.api_version for o in managers.values())
        ):
            return None
        return partial(translated, self.conversion, kind)

    def check_uid(self, route: Route, old: Stored, uid: str) -> None:
        """Refuses a ``uid`` that is not that of ``old``."""
        if uid != old.uid:
            resource = route.kind.resource
            group = resource.group if route.kind.custom else ""
            key = "/".join(p for p in (group, resource.plural, route.namespace, route.name) if p)
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

    def check_sent_version(self, route: Route, old: Stored, sent: JsonObject) -> None:
        """Refuses metadata that were ``sent`` for another version of ``old``."""
        try:
            version = parse_version(sent.get("resourceVersion") or "")
        except ValueError as error:
            raise failures.untyped(str(error)) from None
        if version not in (0, old.version):
            raise failures.modified(route.kind.resource, route.name)

    def _check_unconditional(self, route: Route, sent: JsonObject) -> None:
        kind = route.kind
        if kind.unconditional_update or parse_version(sent.get("resourceVersion") or ""):
            return
        error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        # What is custom is named by its plural here.
        resource = kind.resource._replace(kind=kind.resource.plural) if kind.custom else kind.resource
        raise failures.invalid(resource, route.name, [error])

    def _apply(self, route: Route, request: HttpRequest, options: WriteOptions) -> Stored:
        kind = route.kind
        if not options.manager:
            raise failures.missing_manager()
        sent = sent_to(kind, request)
        if options.strict and (repeated := repeated_keys(request.body or b"")):
            raise failures.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {repeated}")
        write_whole_numbers(sent)
        config = self._body(route, sent, "apply", options)
        if config["metadata"].get("managedFields"):
            raise failures.bad_request("metadata.managedFields must be nil")
        old = self.storage.get(kind.collection, route.key)
        if old is None:
            if not map_at(sent, "metadata").get("name"):
                raise failures.nameless(route.name)
            return self._apply_new(route, config, options)
        old = self.conversion.read(kind, old)
        merged, managers = self._merge(route, old.object, config, self._tracked(route, old), options)
        return self._replace(route, old, merged, options, managers)

    def _tracked(self, route: Route, old: Stored) -> Managers:
        """The managers for an apply: where nobody is known, all there is was somebody's before the first apply."""
        if old.managers:
            return as_read(old.managers)
        manager = ManagerKey("before-first-apply", "Update", route.subresource)
        try:
            return self._own(route.kind, manager, {}, blank(route.kind), old.object, self.writer.timestamp())
        except ApiError as error:
            why = f"failed to convert new object ({named(route.kind, old.object)}) to smd typed: {error}"
            raise failures.untyped(f"failed to create manager for existing fields: {why}") from error

    def _apply_new(self, route: Route, config: JsonObject, options: WriteOptions) -> Stored:
        if route.subresource:
            raise failures.not_found(route.kind.resource, route.name)
        if config["metadata"].get("deletionTimestamp"):
            # It would be there, and marked for deletion from its beginning.
            raise failures.refused_here("a time of deletion that is applied to a new object")
        if uid := config["metadata"].get("uid"):
            because = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise failures.conflict(route.kind.resource, route.name, because)
        merged, managers = self._merge(route, {}, config, {}, options)
        return self._create(route, merged, options, managers)

    def _merge(
        self, route: Route, live: JsonObject, config: JsonObject, managers: Managers, options: WriteOptions
    ) -> tuple[JsonObject, Managers]:
        kind = route.kind
        config = clone(config)
        _complete(kind, config)
        merged, managers = apply_configuration(
            live,
            config,
            _fitting(kind, managers),
            ManagerKey(options.manager, "Apply", route.subresource),
            kind.shape,
            force=options.force,
            api_version=kind.resource.api_version,
            time=self.writer.timestamp(),
            reach=reach_of(kind, route.subresource),
            translate=self._translation(kind, managers),
        )
        return reread(kind, merged, applied=True), managers

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


def _fitting(kind: Kind, managers: Managers) -> Managers:
    """``managers`` as a write to ``kind`` finds them: by its present schema, and of an event those of its group."""
    if not managers or (kind.kept_in is None and not kind.custom):
        return managers
    if kind.custom:
        return reconciled(managers, kind)
    return {k: owned for k, owned in managers.items() if owned.api_version == kind.resource.api_version}


def _is_version(text: str) -> bool:
    """Whether ``text`` is a resourceVersion; what cannot be one is passed over where an object is created."""
    try:
        return parse_version(text) > 0
    except ValueError:
        return False


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
    return name if route.kind.resource == NAMESPACE else route.namespace


def _change(kind: Kind, obj: JsonObject, managers: Managers, old: Stored | None) -> Change:
    """``obj`` in place of ``old``, both as a client would read them."""
    new = Stored(kind.collection, ObjectKey("", ""), obj, managers, 0)
    return Change(_read(kind, new), None if old is None else _read(kind, old))


def _read(kind: Kind, stored: Stored) -> JsonObject:
    return stored.rendered(kind.resource.api_version)


def patched(current: JsonObject, patch: Any, request: HttpRequest, kind: Kind) -> Any:
    """``current`` changed by a patch of the kind that ``request`` names.

    Raises:
        ApiError: the patch does not fit, or is of a kind that ``kind`` does not know.
    """
    match media.media_type(request):
        case media.JSON_PATCH:
            return json_patch(current, patch)
        case media.MERGE_PATCH:
            return merge_patch(current, patch)
        case media.STRATEGIC_PATCH if not kind.custom:
            write_whole_numbers(patch)
            return strategic_merge_patch(current, patch, kind.shape)
        case media.APPLY:
            raise failures.refused_here("server-side apply to this subresource")
        case _:
            strategic = () if kind.custom else (media.STRATEGIC_PATCH,)
            accepted = (media.JSON_PATCH, media.MERGE_PATCH, *strategic, media.APPLY)
            raise failures.unsupported_media_type(accepted)
