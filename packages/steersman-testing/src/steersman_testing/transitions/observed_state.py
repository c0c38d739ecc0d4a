"""Normalized state of a cluster, and differences between two states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from steersman.meta import Quantity
from steersman.meta.field_diff import field_differences
from steersman_testing.apiserver.values import MISSING, JsonObject, get_array, get_object, is_list, is_map
from steersman_testing.generated_names import GeneratedNames, label_generated_names
from steersman_testing.normalization import (
    Normalizer,
    group_kind,
    stable_metadata,
    with_unique_names,
)
from steersman_testing.transitions.document_paths import DocumentPath, format_path

ObservedState = Mapping[str, JsonObject]
"""Normalized objects by kind, namespace and name."""

RESYNC_ANNOTATION = "transitions.steersman.dev/look-again"
"""Annotation that triggers a reconcile of an unchanged object."""

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
"""Kinds that do not show the state of an operator."""

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
# Values below these fields are quantities: 1Gi equals 1024Mi.
_QUANTITY_PARENTS = frozenset({"requests", "limits", "capacity", "hard", "overhead"})
_MAX_TEXT_LENGTH = 80


class StateDifference(NamedTuple):
    """A difference between two states at one path. MISSING marks an absent value."""

    object: str
    path: DocumentPath
    left: Any
    right: Any

    @property
    def location(self) -> tuple[str, DocumentPath]:
        """Object and path."""
        return self.object, self.path

    def __str__(self) -> str:
        return (
            f"{self.object} {format_path(self.path)}".rstrip() + f": {_shorten(self.left)} / {_shorten(self.right)}"
        )


def normalize_state(
    objects: Iterable[JsonObject], namespace: str = "", generated: Mapping[str, str] | None = None
) -> ObservedState:
    """Normalize ``objects`` in wire form.

    UIDs are replaced by the name of their object, generated names by their prefix and timestamps by a placeholder.
    Conditions lose their message. Generations, allocated fields and objects of built-in controllers are left out.

    Args:
        objects: all objects, in any order.
        namespace: namespace name to replace by a placeholder. Empty for none.
        generated: further generated names with their prefix, such as those of deleted objects.
    """
    relevant = [o for o in objects if is_relevant(o)]

    def normalizer_for(names: GeneratedNames) -> _Normalizer:
        normalizer = _Normalizer(names, {}, namespace)
        owners = {o["metadata"]["uid"]: normalizer.normalized_name(o) for o in relevant if o["metadata"].get("uid")}
        return _Normalizer(names, owners, namespace)

    normalizer = normalizer_for(label_generated_names(relevant, normalizer_for, generated))
    # Kinds of different groups may have equal names.
    return with_unique_names((normalizer.normalized_name(obj), normalizer(obj)) for obj in relevant)


def is_relevant(obj: JsonObject) -> bool:
    """Return True if ``obj`` belongs to the state.

    Objects that the cluster creates itself do not.
    """
    metadata = get_object(obj, "metadata")
    owners = [o for o in get_array(metadata, "ownerReferences") if o.get("controller")]
    return not (
        group_kind(obj) in IGNORED_KINDS
        or (group_kind(obj), metadata.get("name")) in _CLUSTER_CREATED_OBJECTS
        or any(o["apiVersion"] in _BUILTIN_OWNERS for o in owners)
    )


def display_name(obj: JsonObject) -> str:
    """Kind, namespace and name of an object."""
    metadata: JsonObject = obj["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{name}" if namespace else f"{obj['kind']} {name}"


class _Normalizer(Normalizer):
    def __init__(self, names: GeneratedNames, owners: Mapping[str, str], namespace: str) -> None:
        super().__init__(names, owners)
        self._namespace = namespace

    def normalized_name(self, obj: JsonObject) -> str:
        return self.normalize_text(display_name(obj))

    def __call__(self, obj: JsonObject) -> JsonObject:
        spec = {
            k: v for k, v in get_object(obj, "spec").items() if k not in _ALLOCATED_FIELDS.get(group_kind(obj), ())
        }
        result: JsonObject = {**obj, "metadata": stable_metadata(obj, _ANNOTATIONS)}
        return self.normalize(result | ({"spec": spec} if is_map(obj.get("spec")) else {}))

    def normalize_field(self, name: str, value: Any) -> Any:
        if name == "observedGeneration":
            return MISSING
        if name == "ownerReferences" and is_list(value):
            # A set by UID, since the order is that of the writes.
            return sorted(
                (self.normalize(owner) for owner in value), key=lambda owner: (owner["kind"], owner["name"])
            )
        if name != "conditions" or not is_list(value) or not all(is_map(c) and "type" in c for c in value):
            return self.normalize(value)
        # A map by type, since the order is arbitrary. Messages are left out, since they may describe the history.
        return {c["type"]: {k: c.get(k) for k in ("status", "reason")} for c in value}

    def replace_names(self, text: str) -> str:
        text = super().replace_names(text)
        return text.replace(self._namespace, "(namespace)") if self._namespace else text


def differences(left: ObservedState, right: ObservedState) -> Iterator[StateDifference]:
    """Yield the differences between two states at the deepest path."""
    for name in sorted(left.keys() | right.keys()):
        found = field_differences(left.get(name, MISSING), right.get(name, MISSING), absent=MISSING)
        for path, one, other in sorted(found, key=lambda difference: difference.path):
            if not _same_quantity(path, one, other):
                yield StateDifference(name, path, one, other)


def _same_quantity(path: DocumentPath, left: Any, right: Any) -> bool:
    if not _QUANTITY_PARENTS.intersection(path) or not isinstance(left, str) or not isinstance(right, str):
        return False
    try:
        return Quantity(left) == Quantity(right)
    except ValueError:
        return False


def is_ignored(difference: StateDifference, ignore: Collection[str]) -> bool:
    """Return True if ``Hints.ignore`` matches the difference."""
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
