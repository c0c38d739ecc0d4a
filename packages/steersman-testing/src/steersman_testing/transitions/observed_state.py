"""What there is, in a form in which two runs that end alike are equal, and where two states differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from steersman.meta import Quantity
from steersman_testing.apiserver.values import MISSING, JsonObject, get_array, get_field, get_object, is_list, is_map
from steersman_testing.generated_names import GeneratedNames, label_generated_names
from steersman_testing.normalization import (
    SERVER_SET_METADATA,
    TIMESTAMP_PATTERN,
    group_kind,
    merge_fields,
    with_unique_names,
)
from steersman_testing.transitions.document_paths import DocumentPath, format_path

ObservedState = Mapping[str, JsonObject]
"""Objects by kind, namespace and name, less what differs from run to run."""

RESYNC_ANNOTATION = "transitions.steersman.dev/look-again"
"""The annotation that makes an operator look at an object to which nothing was done."""

IGNORED_KINDS = frozenset(
    {
        ("", "Endpoints"),
        ("", "Event"),
        ("", "Node"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("coordination.k8s.io", "Lease"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("events.k8s.io", "Event"),
    }
)
"""Groups and kinds that operators do not make, or that are of no matter to what they make."""

_BUILTIN_OWNERS = ("apps/v1", "batch/v1")
_CLUSTER_CREATED_OBJECTS = {
    (("", "ConfigMap"), "kube-root-ca.crt"),
    (("", "ServiceAccount"), "default"),
    (("", "Service"), "kubernetes"),
}
_ANNOTATIONS = (
    RESYNC_ANNOTATION,
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_ALLOCATED_FIELDS = {
    ("", "Service"): ("clusterIP", "clusterIPs", "healthCheckNodePort"),
    ("", "PersistentVolumeClaim"): ("volumeName",),
}
# Below these, 1Gi and 1024Mi are the same.
_QUANTITY_PARENTS = frozenset({"requests", "limits", "capacity", "hard", "overhead"})
_MAX_TEXT_LENGTH = 80


class StateDifference(NamedTuple):
    """One place in which two states differ; MISSING where one has nothing."""

    object: str
    path: DocumentPath
    left: Any
    right: Any

    @property
    def location(self) -> tuple[str, DocumentPath]:
        """Where it is."""
        return self.object, self.path

    def __str__(self) -> str:
        return (
            f"{self.object} {format_path(self.path)}".rstrip() + f": {_shorten(self.left)} / {_shorten(self.right)}"
        )


def normalize_state(
    objects: Iterable[JsonObject], namespace: str = "", generated: Mapping[str, str] | None = None
) -> ObservedState:
    """The state that ``objects`` make up, given in wire form.

    UIDs are told by the object that they belong to, generated names by what they begin with, times by a placeholder,
    conditions without message; generations and what the cluster allocates are left out, and so are objects that
    built-in controllers make of others.

    Args:
        objects: all that there are, in any order.
        namespace: a name to be told by a placeholder wherever it occurs; empty for none.
        generated: further generated names, such as those of objects that are gone, with what they begin with.
    """
    relevant = [o for o in objects if is_relevant(o)]

    def normalizer_for(names: GeneratedNames) -> _Normalizer:
        normalizer = _Normalizer(names, {}, namespace)
        owners = {
            o["metadata"]["uid"]: f"(uid of {normalizer.normalized_name(o)})"
            for o in relevant
            if o["metadata"].get("uid")
        }
        return _Normalizer(names, owners, namespace)

    normalizer = normalizer_for(label_generated_names(relevant, normalizer_for, generated))
    # Kinds of other groups may have the same name.
    return with_unique_names((normalizer.normalized_name(obj), normalizer(obj)) for obj in relevant)


def is_relevant(obj: JsonObject) -> bool:
    """Whether ``obj`` is part of a state, and not made by the cluster itself."""
    metadata = get_object(obj, "metadata")
    owners = [o for o in get_array(metadata, "ownerReferences") if o.get("controller")]
    return not (
        group_kind(obj) in IGNORED_KINDS
        or (group_kind(obj), metadata.get("name")) in _CLUSTER_CREATED_OBJECTS
        or any(o["apiVersion"] in _BUILTIN_OWNERS for o in owners)
    )


def display_name(obj: JsonObject) -> str:
    """Kind, namespace and name."""
    metadata: JsonObject = obj["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{name}" if namespace else f"{obj['kind']} {name}"


class _Normalizer:
    def __init__(self, names: GeneratedNames, owners: Mapping[str, str], namespace: str) -> None:
        self._names = names
        self._owners = owners
        self._namespace = namespace

    def normalized_name(self, obj: JsonObject) -> str:
        return self.normalize_text(display_name(obj))

    def __call__(self, obj: JsonObject) -> JsonObject:
        metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in SERVER_SET_METADATA}
        annotations = {k: v for k, v in get_object(metadata, "annotations").items() if k not in _ANNOTATIONS}
        metadata.pop("annotations", None)
        if annotations:
            metadata["annotations"] = annotations
        spec = {
            k: v for k, v in get_object(obj, "spec").items() if k not in _ALLOCATED_FIELDS.get(group_kind(obj), ())
        }
        result: JsonObject = {**obj, "metadata": metadata} | ({"spec": spec} if is_map(obj.get("spec")) else {})
        return self.normalize(result)

    def normalize(self, value: Any) -> Any:
        if is_map(value):
            fields = ((k, v) for k, v in value.items() if k != "observedGeneration")
            return merge_fields((self._names.replace_in(k), self._normalize_field(k, v)) for k, v in fields)
        if is_list(value):
            return self._names.sort_generated(value, [self.normalize(v) for v in value])
        return self.normalize_text(value) if isinstance(value, str) else value

    def _normalize_field(self, name: str, value: Any) -> Any:
        if name != "conditions" or not is_list(value) or not all(is_map(c) and "type" in c for c in value):
            return self.normalize(value)
        # As a map by type: their order says nothing, and messages speak of how it came about.
        return {c["type"]: {k: c.get(k) for k in ("status", "reason")} for c in value}

    def normalize_text(self, text: str) -> str:
        if text in self._owners:
            return self._owners[text]
        if TIMESTAMP_PATTERN.fullmatch(text):
            return "(time)"
        text = self._names.replace_in(text)
        return text.replace(self._namespace, "(namespace)") if self._namespace else text


def differences(left: ObservedState, right: ObservedState) -> Iterator[StateDifference]:
    """Where two states differ, to the smallest place."""
    for name in sorted(left.keys() | right.keys()):
        yield from _differences(name, (), left.get(name, MISSING), right.get(name, MISSING))


def _differences(name: str, path: DocumentPath, left: Any, right: Any) -> Iterator[StateDifference]:
    if is_map(left) and is_map(right):
        for field in sorted(left.keys() | right.keys()):
            yield from _differences(name, (*path, field), get_field(left, field), get_field(right, field))
    elif is_list(left) and is_list(right) and len(left) == len(right):
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _differences(name, (*path, position), one, other)
    elif (left != right or type(left) is not type(right)) and not _same_quantity(path, left, right):
        yield StateDifference(name, path, left, right)


def _same_quantity(path: DocumentPath, left: Any, right: Any) -> bool:
    if not _QUANTITY_PARENTS.intersection(path) or not isinstance(left, str) or not isinstance(right, str):
        return False
    try:
        return Quantity(left) == Quantity(right)
    except ValueError:
        return False


def is_ignored(difference: StateDifference, ignore: Collection[str]) -> bool:
    """Whether ``ignore``, see ``Hints``, names the place."""
    kind = difference.object.partition(" ")[0]
    place = ".".join((kind, format_path(difference.path))).rstrip(".")
    return any(place == i or place.startswith((f"{i}.", f"{i}[")) for i in ignore)


def _shorten(value: Any) -> str:
    if value is MISSING:
        return "missing"
    if is_map(value) and "metadata" in value:
        return "there"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 1]}…"
