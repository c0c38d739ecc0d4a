"""What there is, in a form in which two runs that end alike are equal, and where two states differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from steersman.meta import Quantity
from steersman.testing.apiserver.values import MISSING, JsonObject, child, is_list, is_map, list_at, map_at
from steersman.testing.transitions.paths import Path, shown

State = Mapping[str, JsonObject]
"""Objects by kind, namespace and name, less what differs from run to run."""

LOOK_AGAIN = "transitions.steersman.dev/look-again"
"""The annotation that makes an operator look at an object to which nothing was done."""

LEFT_OUT = frozenset(
    {"CustomResourceDefinition", "Endpoints", "EndpointSlice", "Event", "Lease", "Namespace", "Node", "APIService"}
)
"""Kinds that operators do not make, or that are of no matter to what they make."""

_BUILTIN_OWNERS = ("apps/v1", "batch/v1")
_MADE_BY_THE_CLUSTER = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"), ("Service", "kubernetes")}
_VOLATILE = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_ANNOTATIONS = (LOOK_AGAIN, "deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
_ALLOCATED = {
    "Service": ("clusterIP", "clusterIPs", "healthCheckNodePort"),
    "PersistentVolumeClaim": ("volumeName",),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
# Below these, 1Gi and 1024Mi are the same.
_QUANTITIES = frozenset({"requests", "limits", "capacity", "hard", "overhead"})
_LONGEST = 80


class Difference(NamedTuple):
    """One place in which two states differ; MISSING where one has nothing."""

    object: str
    path: Path
    here: Any
    there: Any

    @property
    def place(self) -> tuple[str, Path]:
        """Where it is."""
        return self.object, self.path

    def __str__(self) -> str:
        return f"{self.object} {shown(self.path)}".rstrip() + f": {_short(self.here)} / {_short(self.there)}"


def normalised(objects: Iterable[JsonObject], namespace: str = "") -> State:
    """The state that ``objects`` make up, given in wire form.

    UIDs are told by the object that they belong to, times by a placeholder, conditions without message; generations
    and what the cluster allocates are left out, and so are objects that built-in controllers make of others.

    Args:
        objects: all that there are, in any order.
        namespace: a name to be told by a placeholder wherever it occurs; empty for none.
    """
    kept = sorted((o for o in objects if counts(o)), key=_order)
    names = {o["metadata"]["uid"]: f"(uid of {name_of(o)})" for o in kept if o["metadata"].get("uid")}
    plain = _Plain(names, namespace)
    found: dict[str, JsonObject] = {}
    for obj in kept:
        name = unique = plain.text(name_of(obj))
        alike = 1
        while unique in found:
            alike += 1
            unique = f"{name} ({alike})"
        found[unique] = plain.object(obj)
    return found


def counts(obj: JsonObject) -> bool:
    """Whether ``obj`` is part of a state, and not made by the cluster itself."""
    metadata = map_at(obj, "metadata")
    owners = [o for o in list_at(metadata, "ownerReferences") if o.get("controller")]
    return not (
        obj["kind"] in LEFT_OUT
        or (obj["kind"], metadata.get("name")) in _MADE_BY_THE_CLUSTER
        or any(o["apiVersion"] in _BUILTIN_OWNERS for o in owners)
    )


def _order(obj: JsonObject) -> tuple[str, str]:
    # Objects with generated names are told apart by the order in which they were made.
    return name_of(obj), obj["metadata"].get("creationTimestamp") or ""


def name_of(obj: JsonObject) -> str:
    """Kind, namespace and name; a generated name by what it begins with."""
    metadata: JsonObject = obj["metadata"]
    name = f"{metadata['generateName']}*" if metadata.get("generateName") else metadata.get("name", "")
    namespace = metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{name}" if namespace else f"{obj['kind']} {name}"


class _Plain:
    def __init__(self, names: Mapping[str, str], namespace: str) -> None:
        self._names = names
        self._namespace = namespace

    def object(self, obj: JsonObject) -> JsonObject:
        metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in _VOLATILE}
        if metadata.get("generateName"):
            metadata.pop("name", None)
        annotations = {k: v for k, v in map_at(metadata, "annotations").items() if k not in _ANNOTATIONS}
        metadata.pop("annotations", None)
        if annotations:
            metadata["annotations"] = annotations
        spec = {k: v for k, v in map_at(obj, "spec").items() if k not in _ALLOCATED.get(obj["kind"], ())}
        result: JsonObject = {**obj, "metadata": metadata} | ({"spec": spec} if is_map(obj.get("spec")) else {})
        return self.value(result)

    def value(self, value: Any) -> Any:
        if is_map(value):
            return {k: self._field(k, v) for k, v in value.items() if k != "observedGeneration"}
        if is_list(value):
            return [self.value(v) for v in value]
        return self.text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if name != "conditions" or not is_list(value) or not all(is_map(c) and "type" in c for c in value):
            return self.value(value)
        # As a map by type: their order says nothing, and messages speak of how it came about.
        return {c["type"]: {k: c.get(k) for k in ("status", "reason")} for c in value}

    def text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        if _TIME.fullmatch(text):
            return "(time)"
        return text.replace(self._namespace, "(namespace)") if self._namespace else text


def differences(here: State, there: State) -> Iterator[Difference]:
    """Where two states differ, to the smallest place."""
    for name in sorted(here.keys() | there.keys()):
        yield from _differences(name, (), here.get(name, MISSING), there.get(name, MISSING))


def _differences(name: str, path: Path, here: Any, there: Any) -> Iterator[Difference]:
    if is_map(here) and is_map(there):
        for field in sorted(here.keys() | there.keys()):
            yield from _differences(name, (*path, field), child(here, field), child(there, field))
    elif is_list(here) and is_list(there) and len(here) == len(there):
        for position, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from _differences(name, (*path, position), one, other)
    elif (here != there or type(here) is not type(there)) and not _same_quantity(path, here, there):
        yield Difference(name, path, here, there)


def _same_quantity(path: Path, here: Any, there: Any) -> bool:
    if not _QUANTITIES.intersection(path) or not isinstance(here, str) or not isinstance(there, str):
        return False
    try:
        return Quantity(here) == Quantity(there)
    except ValueError:
        return False


def ignored(difference: Difference, ignore: Collection[str]) -> bool:
    """Whether ``ignore``, see ``Hints``, names the place."""
    kind = difference.object.partition(" ")[0]
    place = ".".join((kind, shown(difference.path))).rstrip(".")
    return any(place == i or place.startswith((f"{i}.", f"{i}[")) for i in ignore)


def _short(value: Any) -> str:
    if value is MISSING:
        return "missing"
    if is_map(value) and "metadata" in value:
        return "there"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
