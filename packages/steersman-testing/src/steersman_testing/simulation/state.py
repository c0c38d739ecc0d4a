"""Comparable state of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from steersman.meta.field_diff import field_differences
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.generated_names import GeneratedNames, label_generated_names
from steersman_testing.normalization import (
    Normalizer,
    group_kind,
    stable_metadata,
    with_unique_names,
)

StateSnapshot = Mapping[str, Any]
"""Contents of objects by name, such as ``Deployment.apps default/web``."""
AdjustFunction = Callable[[JsonObject], JsonObject | None]
"""Removes fields that may differ between runs. None ignores the object."""

# These objects do not show whether an operator works correctly.
_IGNORED_KINDS = frozenset({("events.k8s.io", "Event"), ("", "Event"), ("coordination.k8s.io", "Lease")})
CONCURRENT_WRITE_ANNOTATION = "simulation.steersman.dev/touched"
"""Annotation that the fault ``concurrent-write`` sets."""


def snapshot(
    objects: Iterable[JsonObject], adjust: AdjustFunction | None = None, generated: Mapping[str, str] | None = None
) -> StateSnapshot:
    """Return the comparable state of ``objects`` in wire form.

    UIDs are replaced by the name of their object, timestamps and assigned addresses by placeholders. Generated
    names are replaced by their prefix, values of Secrets by ``(set)``, and ``observedGeneration`` by whether it is
    current.

    Args:
        objects: objects in wire form.
        adjust: removes fields that may differ between runs.
        generated: generated names with their prefix, including names of deleted objects.
    """
    relevant = [obj for obj in objects if group_kind(obj) not in _IGNORED_KINDS]
    adjusted = relevant if adjust is None else [c for obj in relevant if (c := adjust(obj)) is not None]

    def normalizer_for(names: GeneratedNames) -> Callable[[JsonObject], JsonObject]:
        return partial(
            _normalize, names=names, owners={obj["metadata"]["uid"]: _display_name(obj, names) for obj in relevant}
        )

    names = label_generated_names(adjusted, normalizer_for, generated)
    normalize = normalizer_for(names)
    return with_unique_names((_display_name(obj, names), normalize(obj)) for obj in adjusted)


def differences(expected: StateSnapshot, actual: StateSnapshot) -> Iterator[str]:
    """Describe how ``actual`` differs from ``expected``, one difference per line."""
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} exists, but is not expected"
        else:
            yield from _describe_differences(name, expected[name], actual[name])


def _display_name(obj: JsonObject, names: GeneratedNames) -> str:
    group, kind = group_kind(obj)
    full = f"{kind}.{group}" if group else kind
    metadata: JsonObject = obj["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{full} {place}{names.replace_in(metadata['name'])}"


def _normalize(obj: JsonObject, names: GeneratedNames, owners: Mapping[str, str]) -> JsonObject:
    metadata = stable_metadata(obj, (CONCURRENT_WRITE_ANNOTATION,))
    rest = {k: v for k, v in obj.items() if k != "metadata"}
    if group_kind(obj) == ("", "Secret"):
        rest["data"] = dict.fromkeys(obj.get("data", {}), "(set)")
    if group_kind(obj) == ("", "Service"):
        rest["spec"] = {
            k: _mask_address(v) if k in ("clusterIP", "clusterIPs") else v for k, v in obj["spec"].items()
        }
    return _Normalizer(names, owners, obj["metadata"].get("generation")).normalize({**rest, "metadata": metadata})


def _mask_address(address: Any) -> Any:
    """Mask an assigned address. The address of a headless Service remains."""
    return address if address in ("None", ["None"]) else "(assigned)"


class _Normalizer(Normalizer):
    def __init__(self, names: GeneratedNames, owners: Mapping[str, str], generation: int | None) -> None:
        super().__init__(names, owners)
        self._generation = generation

    def normalize_field(self, name: str, value: Any) -> Any:
        return _compare_generation(value, self._generation) if name == "observedGeneration" else self.normalize(value)


def _compare_generation(value: Any, generation: int | None) -> Any:
    if generation is None:
        return value
    return "(current)" if value == generation else "(not current)"


def _describe_differences(name: str, expected: JsonObject, actual: JsonObject) -> Iterator[str]:
    found = field_differences(expected, actual, absent=_ABSENT)
    for path, wanted, value in sorted(found, key=lambda difference: difference.path):
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        yield f"{name} {field}: {_shorten(value)}, not {_shorten(wanted)}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
