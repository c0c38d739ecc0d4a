"""ConvertedHandler of handlers, with the manual steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steersman_cli.kopf.handlers import KopfHandler

RECONCILE = ("create", "update", "resume", "field", "timer")

_BECOMES = {
    "create": "reconcile()",
    "update": "reconcile()",
    "resume": "reconcile()",
    "field": "reconcile()",
    "delete": "cleanup(), with a finalizer that the framework adds and removes",
    "timer": "reconcile() that returns Result(requeue_after=...)",
}
_MANUAL = {
    "event": "watch the kind: .owns(Kind) for objects with our owner reference, else .watches(Kind, mapper)",
    "daemon": "run one task for all objects: manager.add, or a Channel that enqueues objects",
    "index": "declare .index(Kind, name, values), and read with self.client.list(Kind, index=(name, value))",
    "validate": "run steersman create webhook --programmatic-validation, or use Field bounds and Rules",
    "mutate": "run steersman create webhook --defaulting, or use defaults of fields",
    "startup": "move the code into setup(manager)",
    "cleanup": "move the code behind run(), or into a runnable of the manager",
    "login": "remove it: load_config() reads kubeconfig files and ServiceAccounts",
    "probe": "declare manager.add_health_check or manager.add_ready_check",
}
_OPTIONS = {
    "when": "express the condition as a predicate: .with_predicate(...)",
    "labels": "add .with_predicate(has_label(...))",
    "annotations": "express the condition as a predicate: .with_predicate(...)",
    "retries": "remove the limit: a failed reconcile is repeated with back-off",
    "timeout": "set .reconcile_timeout(...), in seconds",
    "backoff": "set .base_retry_delay(...) and .max_retry_delay(...)",
    "idle": "return Result(requeue_after=...): a change reconciles at once",
    "initial_delay": "return Result(requeue_after=...) from the first reconcile",
    "optional": "declare cleanup() only if something outside the cluster must be removed",
}
_FIELD_PREDICATES = {
    "metadata.labels": "add .with_predicate(generation_changed | labels_changed)",
    "metadata.annotations": "add .with_predicate(generation_changed | annotations_changed)",
}
_PARAMETERS = {
    "patch": "write the status by self.status(obj, ...), and other fields by self.client.apply or patch",
    "memo": "keep nothing between reconciles, or use an attribute of the reconciler as a cache",
    "old": "compare the desired with the actual state, not with the previous object",
    "diff": "compare the desired with the actual state, not with the previous object",
    "new": "read the field from the object",
    "retry": "remove it: a reconcile does not count its attempts",
    "started": "remove it: a reconcile does not know its first attempt",
    "stopped": "the task is cancelled when the operator stops",
    "body": "use the typed object",
    "spec": "use the typed object",
    "meta": "use the typed object",
    "logger": "use self.log",
}
_KOPF_NAMES = {
    "adopt": "write children by self.client.apply(child, owner=obj)",
    "append_owner_reference": "write children by self.client.apply(child, owner=obj)",
    "harmonize_naming": "name children after the object",
    "event": "use self.events.normal or self.events.warning",
    "info": "use self.events.normal",
    "warn": "use self.events.warning",
    "exception": "use self.events.warning",
    "TemporaryError": "raise any exception for back-off, or return Result(requeue_after=...)",
    "PermanentError": "raise TerminalError",
    "HandlerRetryError": "raise any exception for back-off",
    "execute": "call functions directly",
}
_CLIENT_CALL = re.compile(
    r"(?P<verb>create|patch|replace|delete_collection|delete|list|read|watch)_(?:namespaced_|cluster_)?(?P<kind>[a-z_]+)"
)
_VERBS = {"replace": "update", "read": "get", "delete_collection": "deletecollection"}
_OTHER_METHODS = ("_status", "_for_all_namespaces", "_scale", "_log", "_with_http_info")


@dataclass(frozen=True)
class ConvertedHandler:
    """Result for one handler.

    Attributes:
        becomes: part of the new operator; "" if nothing is converted.
        steps: what is left to do by hand, in the imperative.
    """

    handler: KopfHandler
    becomes: str
    steps: tuple[str, ...]


def convert(handler: KopfHandler) -> ConvertedHandler:
    """Return what a handler becomes."""
    becomes = _BECOMES.get(handler.activity, "") if handler.resource is not None else ""
    return ConvertedHandler(handler, becomes, tuple(dict.fromkeys(_steps(handler))))


def _steps(handler: KopfHandler) -> Iterator[str]:
    if handler.resource is None and handler.activity in (*_BECOMES, "event", "daemon", "index", "validate", "mutate"):
        yield "name the resource: the source computes it, or selects several"
    if handler.activity in _MANUAL:
        yield _MANUAL[handler.activity]
    elif handler.activity not in _BECOMES:
        yield f"port kopf.on.{handler.activity} by hand"
    if handler.activity == "field" and (step := _FIELD_PREDICATES.get(handler.options.get("field", "").strip("'\""))):
        yield step
    yield from (_OPTIONS[name] for name in handler.options if name in _OPTIONS)
    yield from (f"{name}: {_PARAMETERS[name]}" for name in handler.parameters if name in _PARAMETERS)
    if handler.returns_value and handler.resource is not None and handler.activity in (*RECONCILE, "delete"):
        yield f"return value: Kopf stores it in status.{handler.function}; write a status field by self.status(...)"
    yield from (f"kopf.{name}: {_KOPF_NAMES[name]}" for name in handler.kopf_names if name in _KOPF_NAMES)


def required_permissions(handlers: Sequence[KopfHandler]) -> dict[str, tuple[str, ...]]:
    """Return verbs by kind, from calls such as ``create_namespaced_config_map``."""
    verbs: dict[str, set[str]] = {}
    for call in sorted({call for handler in handlers for call in handler.client_calls}):
        if (match := _CLIENT_CALL.fullmatch(call)) is None or "custom_object" in call:
            continue
        kind = match["kind"]
        for suffix in _OTHER_METHODS:
            kind = kind.removesuffix(suffix)
        name = "".join(word.capitalize() for word in kind.split("_"))
        verbs.setdefault(name, set()).add(_VERBS.get(match["verb"], match["verb"]))
    return {kind: tuple(sorted(found)) for kind, found in sorted(verbs.items())}
