"""Admission webhooks: who is asked about a write, in which order, and what becomes of the answers.

Mutating webhooks come after defaulting and before validation, one after the other; validating ones after validation,
all at once. They are asked about what controllers do, too: see ``ControllerRequests``.

Source: "Dynamic Admission Control"; ``k8s.io/apiserver/pkg/admission/plugin/webhook`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.admission.answers import CallError
from steersman_testing.apiserver.admission.match_conditions import Unfit, check_conditions
from steersman_testing.apiserver.admission.webhooks import Attempt, Change, Webhook, question
from steersman_testing.apiserver.builtin.types import conform_metadata
from steersman_testing.apiserver.callouts import Answer, CallFailed, Callouts
from steersman_testing.apiserver.fields.patches import json_patch
from steersman_testing.apiserver.go_values import WrongType
from steersman_testing.apiserver.kinds import NAMESPACES, GroupResource, Kind, KindRegistry
from steersman_testing.apiserver.requests.bodies import SCHEME, head_problem
from steersman_testing.apiserver.storage import Storage
from steersman_testing.apiserver.strategy import decoded, reread
from steersman_testing.apiserver.values import JsonObject, clone, list_at, map_at

_GROUP = "admissionregistration.k8s.io"
_MUTATING = GroupResource(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = GroupResource(_GROUP, "validatingwebhookconfigurations")

_VERBS = ("add", "copy", "move", "remove", "replace", "test")

Reader = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class Admission:
    """Asks the webhooks that are configured.

    Attributes:
        warnings: what the answer to the present request warns of: what webhooks say, fields that are unknown or come
            twice, deprecated versions. The server clears it before each request.
    """

    storage: Storage
    kinds: KindRegistry
    callouts: Callouts
    warnings: list[str] = field(default_factory=list[str])

    @property
    def is_configured(self) -> bool:
        """Whether there is any webhook at all."""
        return self.storage.has(_MUTATING) or self.storage.has(_VALIDATING)

    def mutate(self, attempt: Attempt, change: Change, read: Reader) -> JsonObject:
        """The new object as the mutating webhooks leave it.

        Args:
            change: a creation or an update.
            read: how the server understands what a webhook makes of the object.

        Raises:
            ApiError: one refuses, or fails and must not.
            NeedsCall: one has to be asked first.
        """
        mutated = _Mutation(self, attempt, change, read).run()
        assert mutated.new is not None, "a deletion has no object to change: see mutate_deletion"
        return mutated.new

    def mutate_deletion(self, attempt: Attempt, change: Change) -> None:
        """Asks the mutating webhooks about a deletion, which they cannot change. Raises as ``mutate``."""
        _Mutation(self, attempt, change, clone).run()

    def validate(self, attempt: Attempt, change: Change) -> None:
        """Asks the validating webhooks. Raises as ``mutate``."""
        asked = list(self._asked(_VALIDATING, attempt, change))
        if not asked:
            return
        calls = [hook.call(attempt, matched, change) for hook, matched in asked]
        found = self.callouts.answers(calls)
        # Of several refusals the real server tells the one that came first.
        for position in self.callouts.first_answered(calls):
            self.judge(asked[position][0], found[position])

    def check_unasked(self, attempt: Attempt) -> None:
        """Refuses an operation that a webhook may have to be asked about, though this server cannot ask.

        Raises:
            ApiError: 501.
        """
        nothing = Change(None, None)
        namespace = self.storage.get(NAMESPACES, ObjectKey("", attempt.namespace))
        for hook, _ in (*self._hooks(_MUTATING, attempt), *self._hooks(_VALIDATING, attempt)):
            if hook.covers(attempt, []) and hook.selects_namespace(attempt, nothing, namespace):
                what = "/".join(p for p in (attempt.resource.plural, attempt.subresource) if p)
                raise failures.refused_here(f'asking the admission webhook "{hook.name}" about {what}')

    def judge(self, hook: Webhook, found: Answer | CallFailed) -> JsonObject | None:
        """What ``hook`` says if it allows; None where it failed and may."""
        try:
            if isinstance(found, CallFailed):
                raise CallError(f"failed to call webhook: {found}")
            response = hook.response(found)
        except CallError as error:
            if hook.may_fail:
                return None
            raise failures.internal(f'failed calling webhook "{hook.name}": {error}') from error
        self.warnings.extend(list_at(response, "warnings"))
        if not response.get("allowed"):
            raise hook.denial(response)
        return response

    def _asked(
        self, collection: GroupResource, attempt: Attempt, change: Change
    ) -> Iterator[tuple[Webhook, ApiResource]]:
        """The webhooks that match, and what they are asked about."""
        for hook, _ in self._hooks(collection, attempt):
            matched = self.matched(hook, attempt, change)
            if matched is not None:
                yield hook, matched

    def mutating(self, attempt: Attempt) -> Iterator[tuple[Webhook, str]]:
        """All mutating webhooks, in the order in which they are asked, each with a name that no other has."""
        return self._hooks(_MUTATING, attempt)

    def _hooks(self, collection: GroupResource, attempt: Attempt) -> Iterator[tuple[Webhook, str]]:
        # Nobody can be locked out of mending a webhook: see "Dynamic Admission Control".
        for configuration in self.storage.list(collection) if attempt.resource.group != _GROUP else ():
            for spec in list_at(configuration.object, "webhooks"):
                yield Webhook(spec, collection == _MUTATING), f"{configuration.key.name}/{spec['name']}"

    def matched(self, hook: Webhook, attempt: Attempt, change: Change) -> ApiResource | None:
        """What ``hook`` is asked about; None where it is not asked.

        Raises:
            ApiError: 403, its match conditions cannot be evaluated, and it must not fail.
        """
        namespace = self.storage.get(NAMESPACES, ObjectKey("", attempt.namespace))
        if not hook.selects_namespace(attempt, change, namespace):
            return None
        if not change.wears(map_at(hook.spec, "objectSelector")):
            return None
        matched = hook.covers(attempt, self._versions_of(attempt))
        if matched is not None and matched != attempt.resource and self._is_converted(matched):
            raise failures.refused_here(
                f'asking the admission webhook "{hook.name}" in a version that is converted to'
            )
        conditions = list_at(hook.spec, "matchConditions")
        if matched is None or not conditions:
            return matched
        try:
            fits = check_conditions(conditions, change.new, change.old, question(attempt, matched, change))
        except Unfit as error:
            if hook.may_fail:
                return None
            raise failures.forbidden(attempt.resource, attempt.name, str(error)) from error
        return matched if fits else None

    def _is_converted(self, resource: ApiResource) -> bool:
        """Whether its versions differ in more than their names."""
        kind = self.kinds.find(resource.group, resource.version, resource.plural)
        versions = kind.versions if kind is not None else None
        return versions is not None and versions.conversion.get("strategy") == "Webhook"

    def _versions_of(self, attempt: Attempt) -> list[ApiResource]:
        """What else the same objects are read and written as."""
        found = [k.resource for k in self.kinds if k.collection == attempt.collection]
        return [r for r in found if r.version != attempt.resource.version]


class _Mutation:
    """One object's way through the mutating webhooks, at most twice: see ``reinvocationPolicy``."""

    def __init__(self, admission: Admission, attempt: Attempt, change: Change, read: Reader) -> None:
        self._admission = admission
        self._attempt = attempt
        self._change = change
        self._read = read
        self._once: list[str] = []
        self._again: set[str] = set()

    def run(self) -> Change:
        self._round(first=True)
        if self._again:
            self._round(first=False)
        return self._change

    def _round(self, *, first: bool) -> None:
        for hook, identity in self._admission.mutating(self._attempt):
            if not first and identity not in self._again:
                continue
            matched = self._admission.matched(hook, self._attempt, self._change)
            if matched is not None:
                self._ask(hook, matched, identity)

    def _ask(self, hook: Webhook, matched: ApiResource, identity: str) -> None:
        call = hook.call(self._attempt, matched, self._change)
        (found,) = self._admission.callouts.answers([call])
        response = self._admission.judge(hook, found)
        changed = response is not None and self._patch(hook, response)
        if changed:
            # What was asked before has seen another object than there is now.
            self._again.update(self._once)
            self._once.clear()
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            self._once.append(identity)

    def _patch(self, hook: Webhook, response: JsonObject) -> bool:
        """Whether the answer changes the object."""
        try:
            operations = hook.patch(response)
        except CallError as error:
            if hook.may_fail:
                return False
            raise failures.internal(f'failed calling webhook "{hook.name}": {error}') from error
        if not operations:
            return False
        before = self._change.new
        if before is None:
            because = "attempted to modify the object, which is not supported for this operation"
            raise failures.internal(f'admission webhook "{hook.name}" {because}')
        after = clone(before)
        for operation in operations:
            after = _applied(after, operation)
        self._check(before, after)
        try:
            read = self._read(after)
        except ApiError as error:
            if error.code != 400:
                raise
            # It is the webhook's fault, not that of who sent the object.
            raise failures.internal(error.status.message.partition(": ")[2]) from error
        self._change = Change(read, self._change.old)
        return self._change.new != before

    def _check(self, before: JsonObject, after: JsonObject) -> None:
        """Refuses another kind, and another namespace, and completes what is missing."""
        resource = self._attempt.sent or self._attempt.resource
        if problem := head_problem(after):
            raise failures.internal(f"couldn't get version/kind; json parse error: {problem}")
        for name in ("apiVersion", "kind"):
            after[name] = after.get(name) or before[name]
        version, kind = after["apiVersion"], after["kind"]
        if (version, kind) != (before["apiVersion"], before["kind"]):
            if self._admission.kinds.named(version, kind) is None:
                raise failures.internal(f'no kind "{kind}" is registered for version "{version}" in {SCHEME}')
            wanted = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
            raise failures.untyped(
                f"converting ({version.rpartition('/')[2]}.{kind}) to ({wanted}): unknown conversion"
            )
        sent = after.get("metadata")
        try:
            meta, _ = conform_metadata({} if sent is None else sent, resource.kind)
        except WrongType as error:
            raise failures.internal(str(error)) from None
        after["metadata"] = meta
        place = before["metadata"].get("namespace", "")
        if (meta.get("namespace") or place) != place:
            raise failures.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if place:
            meta["namespace"] = place


def read_as(kind: Kind, obj: JsonObject, *, applied: bool) -> JsonObject:
    """``obj``, which a webhook has made, pruned and defaulted anew, in the version of the request.

    Args:
        applied: whether it comes of an apply, whose nulls are nowhere dropped.
    """
    managed = obj["metadata"].pop("managedFields", None)
    result = {**decoded(kind, reread(kind, obj, applied=applied)), "apiVersion": obj["apiVersion"]}
    if managed is not None:
        result["metadata"] = {**result["metadata"], "managedFields": managed}
    return result


def _applied(obj: JsonObject, operation: JsonObject) -> JsonObject:
    """``obj`` after one operation of a JSON patch. Raises ApiError 500 where it does not fit."""
    verb, path = operation.get("op") or "unknown", operation.get("path")
    if verb not in _VERBS:
        raise failures.internal(f"Unexpected kind: {verb}")
    if not isinstance(path, str):
        raise failures.internal(f"{verb} operation failed to decode path: missing value")
    if verb in ("copy", "move") and not isinstance(operation.get("from"), str):
        because = "operation, missing from field: missing value"
        raise failures.internal(f"{verb} operation failed to decode from: {because}")
    if not path:
        raise failures.internal(f'{verb} operation does not apply: doc is missing path: "": missing value')
    try:
        return json_patch(obj, [{"value": None, **operation}])
    except ApiError as error:
        if verb == "test":
            raise failures.internal(f"testing value {path} failed: test failed") from error
        at = operation["from"] if verb == "move" else path
        key = at.rpartition("/")[2]
        if verb in ("add", "replace", "copy") or at.count("/") != 1:
            text = f'{verb} operation does not apply: doc is missing path: "{at}": missing value'
        else:
            place = key if verb == "move" else at
            text = f"error in {verb} for path: '{place}': Unable to remove nonexistent key: {key}: missing value"
        raise failures.internal(text) from error
