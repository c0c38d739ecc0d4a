"""What there is, in a form in which two runs that end alike are equal, and where two states differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from steersman.meta import Quantity
from steersman_testing.apiserver.values import MISSING, JsonObject, child, is_list, is_map, list_at, map_at
from steersman_testing.comparable import TIME, VOLATILE, group_kind, named_apart, told_map
from steersman_testing.generated_names import GeneratedNames, tell
from steersman_testing.transitions.paths import Path, shown

State = Mapping[str, JsonObject]
"""Objects by kind, namespace and name, less what differs from run to run."""

LOOK_AGAIN = "transitions.steersman.dev/look-again"
"""The annotation that makes an operator look at an object to which nothing was done."""

LEFT_OUT = frozenset(
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
_MADE_BY_THE_CLUSTER = {
    (("", "ConfigMap"), "kube-root-ca.crt"),
    (("", "ServiceAccount"), "default"),
    (("", "Service"), "kubernetes"),
}
_ANNOTATIONS = (LOOK_AGAIN, "deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
_ALLOCATED = {
    ("", "Service"): ("clusterIP", "clusterIPs", "healthCheckNodePort"),
    ("", "PersistentVolumeClaim"): ("volumeName",),
}
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


def normalised(
    objects: Iterable[JsonObject], namespace: str = "", generated: Mapping[str, str] | None = None
) -> State:
    """The state that ``objects`` make up, given in wire form.

    UIDs are told by the object that they belong to, generated names by what they begin with, times by a placeholder,
    conditions without message; generations and what the cluster allocates are left out, and so are objects that
    built-in controllers make of others.

    Args:
        objects: all that there are, in any order.
        namespace: a name to be told by a placeholder wherever it occurs; empty for none.
        generated: further generated names, such as those of objects that are gone, with what they begin with.
    """
    kept = [o for o in objects if counts(o)]

    def telling(names: GeneratedNames) -> _Plain:
        plain = _Plain(names, {}, namespace)
        owners = {o["metadata"]["uid"]: f"(uid of {plain.name(o)})" for o in kept if o["metadata"].get("uid")}
        return _Plain(names, owners, namespace)

    plain = telling(tell(kept, telling, generated))
    # Kinds of other groups may have the same name.
    return named_apart((plain.name(obj), plain(obj)) for obj in kept)


def counts(obj: JsonObject) -> bool:
    """Whether ``obj`` is part of a state, and not made by the cluster itself."""
    metadata = map_at(obj, "metadata")
    owners = [o for o in list_at(metadata, "ownerReferences") if o.get("controller")]
    return not (
        group_kind(obj) in LEFT_OUT
        or (group_kind(obj), metadata.get("name")) in _MADE_BY_THE_CLUSTER
        or any(o["apiVersion"] in _BUILTIN_OWNERS for o in owners)
    )


def name_of(obj: JsonObject) -> str:
    """Kind, namespace and name."""
    metadata: JsonObject = obj["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{name}" if namespace else f"{obj['kind']} {name}"


class _Plain:
    def __init__(self, names: GeneratedNames, owners: Mapping[str, str], namespace: str) -> None:
        self._names = names
        self._owners = owners
        self._namespace = namespace

    def name(self, obj: JsonObject) -> str:
        return self.text(name_of(obj))

    def __call__(self, obj: JsonObject) -> JsonObject:
        metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in VOLATILE}
        annotations = {k: v for k, v in map_at(metadata, "annotations").items() if k not in _ANNOTATIONS}
        metadata.pop("annotations", None)
        if annotations:
            metadata["annotations"] = annotations
        spec = {k: v for k, v in map_at(obj, "spec").items() if k not in _ALLOCATED.get(group_kind(obj), ())}
        result: JsonObject = {**obj, "metadata": metadata} | ({"spec": spec} if is_map(obj.get("spec")) else {})
        return self.value(result)

    def value(self, value: Any) -> Any:
        if is_map(value):
            fields = ((k, v) for k, v in value.items() if k != "observedGeneration")
            return told_map((self._names.text(k), self._field(k, v)) for k, v in fields)
        if is_list(value):
            return self._names.items(value, [self.value(v) for v in value])
        return self.text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if name != "conditions" or not is_list(value) or not all(is_map(c) and "type" in c for c in value):
            return self.value(value)
        # As a map by type: their order says nothing, and messages speak of how it came about.
        return {c["type"]: {k: c.get(k) for k in ("status", "reason")} for c in value}

    def text(self, text: str) -> str:
        if text in self._owners:
            return self._owners[text]
        if TIME.fullmatch(text):
            return "(time)"
        text = self._names.text(text)
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
