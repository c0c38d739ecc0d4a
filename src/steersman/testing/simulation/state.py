"""The state of a world, less what differs from run to run: two runs that end alike have equal states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from steersman.testing.apiserver.values import JsonObject

State = Mapping[str, Any]
"""By the name of an object (``deployments.apps default/web``), its content."""
Adjust = Callable[[JsonObject], JsonObject | None]
"""Takes out of an object what may differ between runs; None leaves the object out altogether."""

# Made by the server or by nobody in particular, and of no matter to whether an operator works.
_LEFT_OUT = frozenset(
    {
        "Event events.k8s.io/v1",
        "Event v1",
        "Lease coordination.k8s.io/v1",
        "CustomResourceDefinition apiextensions.k8s.io/v1",
        "Namespace v1",
    }
)
_VOLATILE = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
TOUCHED = "simulation.steersman.dev/touched"
"""The annotation by which another actor of a simulation changes an object."""


def snapshot(objects: Iterable[JsonObject], adjust: Adjust | None = None) -> State:
    """The comparable state of ``objects``, given in wire form.

    UIDs are told by the object that they belong to; times, assigned addresses and generated names by a placeholder;
    the values of Secrets by their presence; ``observedGeneration`` by whether it is the object's own generation.
    """
    kept = [obj for obj in objects if f"{obj['kind']} {obj['apiVersion']}" not in _LEFT_OUT]
    names = {obj["metadata"]["uid"]: _name(obj) for obj in kept}
    found: dict[str, Any] = {}
    alike: Counter[str] = Counter()
    for obj in kept:
        chosen = obj if adjust is None else adjust(obj)
        if chosen is None:
            continue
        name = _name(obj)
        alike[name] += 1
        # Objects with generated names are told apart by their order only.
        key = name if alike[name] == 1 else f"{name} ({alike[name]})"
        found[key] = _normalised(chosen, names)
    return found


def differences(expected: State, actual: State) -> Iterator[str]:
    """How ``actual`` differs from ``expected``, a line each, for people."""
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is there, and should not be"
        else:
            yield from _differences(name, expected[name], actual[name])


def _name(obj: JsonObject) -> str:
    metadata: JsonObject = obj["metadata"]
    version, _, _ = obj["apiVersion"].rpartition("/")
    kind = f"{obj['kind']}.{version}" if version else obj["kind"]
    name = f"{metadata['generateName']}*" if metadata.get("generateName") else metadata["name"]
    namespace = metadata.get("namespace", "")
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _normalised(obj: JsonObject, names: Mapping[str, str]) -> JsonObject:
    metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in _VOLATILE}
    if metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}*"
    annotations = {k: v for k, v in metadata.pop("annotations", {}).items() if k != TOUCHED}
    if annotations:
        metadata["annotations"] = annotations
    rest = {k: v for k, v in obj.items() if k != "metadata"}
    if f"{obj['kind']} {obj['apiVersion']}" == "Secret v1":
        rest["data"] = dict.fromkeys(obj.get("data", {}), "(set)")
    if f"{obj['kind']} {obj['apiVersion']}" == "Service v1":
        rest["spec"] = {k: _assigned(v) if k in ("clusterIP", "clusterIPs") else v for k, v in obj["spec"].items()}
    return _plain({**rest, "metadata": metadata}, names, obj["metadata"].get("generation"))


def _assigned(address: Any) -> Any:
    """The API server chooses an address, unless the Service is to have none."""
    return address if address in ("None", ["None"]) else "(assigned)"


def _plain(value: Any, names: Mapping[str, str], generation: int | None) -> Any:
    if isinstance(value, dict):
        return {
            key: _observed(inner, generation) if key == "observedGeneration" else _plain(inner, names, generation)
            for key, inner in sorted(cast("JsonObject", value).items())
        }
    if isinstance(value, list):
        return [_plain(inner, names, generation) for inner in cast("list[Any]", value)]
    if isinstance(value, str):
        if value in names:
            return f"(uid of {names[value]})"
        return "(time)" if _TIME.fullmatch(value) else value
    return value


def _observed(value: Any, generation: int | None) -> Any:
    if generation is None:
        return value
    return "(current)" if value == generation else "(not current)"


def _differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        wanted, found = cast("JsonObject", expected), cast("JsonObject", actual)
        joint = "." if " ." in path else " ."
        for key in sorted(wanted.keys() | found.keys()):
            yield from _differences(f"{path}{joint}{key}", wanted.get(key, _ABSENT), found.get(key, _ABSENT))
        return
    if isinstance(expected, list) and isinstance(actual, list):
        items, others = cast("list[Any]", expected), cast("list[Any]", actual)
        if len(items) == len(others):
            for place, (one, other) in enumerate(zip(items, others, strict=True)):
                yield from _differences(f"{path}[{place}]", one, other)
            return
    if expected != actual:
        yield f"{path}: {_shown(actual)}, not {_shown(expected)}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
