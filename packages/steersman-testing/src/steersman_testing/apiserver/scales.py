"""The subresource scale: how many replicas an object asks for, whatever its kind.

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
from steersman_testing.apiserver.access.authorization import User
from steersman_testing.apiserver.admission.webhooks import Change
from steersman_testing.apiserver.failures import FieldError, invalid_value
from steersman_testing.apiserver.fields.ownership import ManagerKey, Managers, as_read
from steersman_testing.apiserver.fields.scaled import managers_of_scale, managers_of_scaled
from steersman_testing.apiserver.fields.sets import Path
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import Kind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.bodies import SCHEME, complete_from_url, decode_body
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.requests.selectors import selector_text
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.strategy import prepare_update, reread
from steersman_testing.apiserver.values import JsonObject, clone, is_map, map_at, metadata, section
from steersman_testing.apiserver.verbs import Verbs, attempt_of, patched

_SCALE = Kind(resource=ApiResource("autoscaling", "v1", "Scale", "scale"), shape=BuiltinShape(("Scale",)))
# What a patch finds where a custom resource does not have the field, and must not leave there.
_NO_NUMBER = -(2**31)


@dataclass(frozen=True, slots=True)
class Scales:
    """Answers requests to scale; every method raises ApiError as the real server would refuse."""

    verbs: Verbs

    def read(self, route: Route) -> bytes:
        """The scale of an object, as JSON."""
        return _encoded(self.verbs.get(route), route.kind)

    def write(self, route: Route, request: HttpRequest, user: User) -> bytes:
        """Changes how many replicas an object asks for; the scale as it is then, as JSON."""
        kind, options = route.kind, WriteOptions.of(request, user)
        sent = self._replacement(route, request, options) if request.method == "PUT" else None
        old = self.verbs.get(route)
        before = _scale(old, kind, missing=_NO_NUMBER)
        if sent is None:
            sent = self._patched(route, request, options, before)
            _check_patched_uid(route, sent, old)
        elif uid := metadata(sent).get("uid"):
            self.verbs.check_uid(route, old, uid)
        attempt, admission = attempt_of(route, "UPDATE", options, route.name, _SCALE.resource), self.verbs.admission
        sent = admission.mutate(attempt, Change(sent, before), clone)
        self.verbs.check_sent_version(route, old, metadata(sent))
        obj = _with_replicas(old, kind, map_at(sent, "spec").get("replicas") or 0)
        obj = prepare_update(kind, old.object, reread(kind, obj), "")
        managers = self._managers(kind, options, old, before, sent)
        draft = Stored(old.collection, old.key, obj, managers, old.version)
        admission.validate(attempt, Change(_scale(draft, kind), before))
        return _encoded(self.verbs.keep(kind, old, obj, managers, dry_run=options.dry_run), kind)

    def _managers(
        self, kind: Kind, options: WriteOptions, old: Stored, before: JsonObject, sent: JsonObject
    ) -> Managers:
        """The managers of the object after ``sent`` was written in place of ``before``, scales both."""
        former, place = as_read(old.managers), partial(self._place, kind)
        owned = managers_of_scale(former, place)
        if owned:
            # A number that nobody owns stays so: see skipNonApplied in apimachinery's managedfields.
            manager = ManagerKey(options.writer, "Update", "scale")
            now = self.verbs.writer.timestamp()
            owned = self.verbs.own(_SCALE, manager, owned, _number(before), _number(sent), now=now)
        return managers_of_scaled(former, owned, kind.resource.api_version, place)

    def _place(self, kind: Kind, api_version: str) -> Path | None:
        group, _, version = api_version.rpartition("/")
        found = self.verbs.kinds.find(group, version, kind.resource.plural)
        return None if found is None or found.scale is None else tuple(f"f:{n}" for n in _path(found.scale.spec))

    def _replacement(self, route: Route, request: HttpRequest, options: WriteOptions) -> JsonObject:
        try:
            sent = self.verbs.incoming.decoded(_SCALE, request, options, name=route.name)
        except ApiError as error:
            if not route.kind.custom or error.code != 400:
                raise
            # The server of custom resources cannot name what it failed to read.
            raise failures.bad_request(f"no kind is registered for the type v1.Scale in {SCHEME}") from None
        complete_from_url(metadata(sent), route.name, route.namespace)
        return sent

    def _patched(self, route: Route, request: HttpRequest, options: WriteOptions, before: JsonObject) -> JsonObject:
        body = patched(before, decode_body(request), request, route.kind)
        incoming = self.verbs.incoming
        sent = incoming.read(_SCALE, body, "patch", options, name=route.name, namespace=route.namespace)
        if map_at(sent, "spec").get("replicas") == _NO_NUMBER and route.kind.scale is not None:
            raise failures.bad_request(f'the spec replicas field "{route.kind.scale.spec}" cannot be empty')
        return sent


def _check_patched_uid(route: Route, sent: JsonObject, old: Stored) -> None:
    uid = metadata(sent).get("uid")
    if uid and uid != old.uid and not route.kind.custom:
        resource = route.kind.resource._replace(plural=f"{route.kind.resource.plural}/scale")
        because = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
        raise failures.conflict(resource, route.name, because)


def _with_replicas(old: Stored, kind: Kind, replicas: int) -> JsonObject:
    """The object of ``old``, asking for ``replicas``. Raises ApiError: 422, less than none."""
    assert kind.scale is not None
    if replicas < 0:
        raise _negative(kind, old.key.name, replicas)
    obj: JsonObject = clone(old.object)
    *parents, last = _path(kind.scale.spec)
    place = obj
    for name in parents:
        place = section(place, name)
    place[last] = replicas
    return obj


def _number(scale: JsonObject) -> JsonObject:
    """What of a scale can be owned; none at all is what Go leaves out."""
    replicas = map_at(scale, "spec").get("replicas")
    return {"spec": {"replicas": replicas} if replicas else {}}


def _path(path: str) -> list[str]:
    return path.lstrip(".").split(".")


def _at(obj: JsonObject, path: str) -> Any:
    *parents, last = _path(path)
    place = obj
    for name in parents:
        place = map_at(place, name)
    return place.get(last)


def _scale(stored: Stored, kind: Kind, *, missing: int | None = None) -> JsonObject:
    """``autoscaling/v1 Scale`` of an object.

    Args:
        missing: stands for the number where a custom resource does not have the field.

    Raises:
        ApiError: 500, it does not, and nothing stands for it.
    """
    paths = kind.scale
    assert paths is not None
    replicas = _at(stored.object, paths.spec)
    if replicas is None and missing is None:
        raise failures.internal(f'the spec replicas field "{paths.spec}" does not exist')
    wanted = missing if replicas is None else replicas
    meta = stored.object["metadata"]
    status: JsonObject = {"replicas": _at(stored.object, paths.status) or 0}
    selector = _at(stored.object, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector_text(selector) if is_map(selector) else selector
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": _SCALE.resource.kind,
        "apiVersion": _SCALE.resource.api_version,
        "metadata": {n: meta[n] for n in names if n in meta},
        # None at all is what Go leaves out.
        "spec": {"replicas": wanted} if wanted else {},
        "status": status,
    }


def _encoded(stored: Stored, kind: Kind) -> bytes:
    return msgspec.json.encode(_scale(stored, kind))


def _negative(kind: Kind, name: str, replicas: int) -> ApiError:
    if kind.custom and kind.scale is not None:
        error = invalid_value(kind.scale.spec, replicas, "should be a non-negative integer")
        return failures.invalid(kind.resource, name, [error])
    error: FieldError = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    return failures.invalid(_SCALE.resource, name, [error])
