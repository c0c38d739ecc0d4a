"""The state of a world, less what differs from run to run: two runs that end alike have equal states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from steersman_testing.apiserver.values import JsonObject
from steersman_testing.comparable import TIME, VOLATILE, group_kind, named_apart, told_map
from steersman_testing.generated_names import GeneratedNames, tell

State = Mapping[str, Any]
"""By the name of an object (``deployments.apps default/web``), its content."""
Adjust = Callable[[JsonObject], JsonObject | None]
"""Takes out of an object what may differ between runs; None leaves the object out altogether."""

# Made by the server or by nobody in particular, and of no matter to whether an operator works.
_LEFT_OUT = frozenset({("events.k8s.io", "Event"), ("", "Event"), ("coordination.k8s.io", "Lease")})
TOUCHED = "simulation.steersman.dev/touched"
"""The annotation by which another actor of a simulation changes an object."""


def snapshot(
    objects: Iterable[JsonObject], adjust: Adjust | None = None, generated: Mapping[str, str] | None = None
) -> State:
    """The comparable state of ``objects``, given in wire form.

    UIDs are told by the object that they belong to; times and assigned addresses by a placeholder; generated names by
    what they begin with; the values of Secrets by their presence; ``observedGeneration`` by whether it is the
    object's own generation.

    Args:
        generated: the generated names so far, also of what is gone, with what they begin with.
    """
    kept = [obj for obj in objects if group_kind(obj) not in _LEFT_OUT]
    chosen = kept if adjust is None else [c for obj in kept if (c := adjust(obj)) is not None]

    def telling(names: GeneratedNames) -> Callable[[JsonObject], JsonObject]:
        return partial(_normalised, names=names, owners={obj["metadata"]["uid"]: _name(obj, names) for obj in kept})

    names = tell(chosen, telling, generated)
    normalised = telling(names)
    return named_apart((_name(obj, names), normalised(obj)) for obj in chosen)


def differences(expected: State, actual: State) -> Iterator[str]:
    """How ``actual`` differs from ``expected``, a line each, for people."""
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is there, and should not be"
        else:
            yield from _differences(name, expected[name], actual[name])


def _name(obj: JsonObject, names: GeneratedNames) -> str:
    group, kind = group_kind(obj)
    full = f"{kind}.{group}" if group else kind
    metadata: JsonObject = obj["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{full} {place}{names.text(metadata['name'])}"


def _normalised(obj: JsonObject, names: GeneratedNames, owners: Mapping[str, str]) -> JsonObject:
    metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in VOLATILE}
    annotations = {k: v for k, v in metadata.pop("annotations", {}).items() if k != TOUCHED}
    if annotations:
        metadata["annotations"] = annotations
    rest = {k: v for k, v in obj.items() if k != "metadata"}
    if group_kind(obj) == ("", "Secret"):
        rest["data"] = dict.fromkeys(obj.get("data", {}), "(set)")
    if group_kind(obj) == ("", "Service"):
        rest["spec"] = {k: _assigned(v) if k in ("clusterIP", "clusterIPs") else v for k, v in obj["spec"].items()}
    return _Plain(names, owners, obj["metadata"].get("generation")).value({**rest, "metadata": metadata})


def _assigned(address: Any) -> Any:
    """The API server chooses an address, unless the Service is to have none."""
    return address if address in ("None", ["None"]) else "(assigned)"


class _Plain:
    def __init__(self, names: GeneratedNames, owners: Mapping[str, str], generation: int | None) -> None:
        self._names, self._owners, self._generation = names, owners, generation

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            fields = cast("JsonObject", value).items()
            return told_map((self._names.text(k), self._field(k, v)) for k, v in fields)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return self._names.items(items, [self.value(inner) for inner in items])
        if isinstance(value, str):
            if value in self._owners:
                return f"(uid of {self._owners[value]})"
            return "(time)" if TIME.fullmatch(value) else self._names.text(value)
        return value

    def _field(self, key: str, value: Any) -> Any:
        return _observed(value, self._generation) if key == "observedGeneration" else self.value(value)


def _observed(value: Any, generation: int | None) -> Any:
    if generation is None:
        return value
    return "(current)" if value == generation else "(not current)"


def _differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    if expected == actual:
        return
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
    yield f"{path}: {_shown(actual)}, not {_shown(expected)}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
