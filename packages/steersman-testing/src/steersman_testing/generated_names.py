"""Stable labels for generated names, so that equal states compare equal.

The API server appends a random suffix to ``generateName``. The label of ``orders-x7k2p`` is ``orders-*``. It replaces
the name wherever the name occurs: in the object, in references to it, and inside longer names.

If several objects share a prefix, their labels are numbered: ``orders-*``, ``orders-* (2)``. The order depends on the
content of the objects and of their referrers. The random suffix only decides ties.

The numbering uses color refinement. Objects share a color if they and their referrers are equal apart from names of
the same color. Refinement repeats until the number of colors is stable. Then a tie is broken and refinement repeats.

Source: McKay and Piperno, "Practical graph isomorphism, II", 2014.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from steersman_testing.apiserver.storage import StorageEvent
from steersman_testing.apiserver.values import JsonObject

_MAX_PREFIX_LENGTH = 58
_RANDOM_SUFFIX = "[a-z0-9]{5}"
# More ties are rare. Objects beyond the limit are numbered in arbitrary order.
_MAX_TIE_BREAKS = 20
_SELF_LABEL = "(this)"


def generated_prefix(metadata: JsonObject) -> str:
    """Return the prefix of a generated name. Empty for other names."""
    prefix = (metadata.get("generateName") or "")[:_MAX_PREFIX_LENGTH]
    return prefix if prefix and re.fullmatch(re.escape(prefix) + _RANDOM_SUFFIX, metadata.get("name", "")) else ""


def generated_prefixes(objects: Iterable[JsonObject]) -> dict[str, str]:
    """Prefixes of the generated names of ``objects``, by name."""
    metadata = (obj["metadata"] for obj in objects)
    return {found["name"]: prefix for found in metadata if (prefix := generated_prefix(found))}


def generated_prefixes_in_history(history: Iterable[StorageEvent]) -> dict[str, str]:
    """Prefixes of all generated names that a server ever stored."""
    return generated_prefixes(e.after.object for e in history if e.before is None and e.after is not None)


def canonical_json(value: Any) -> bytes:
    """Encode ``value`` so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="deterministic")


class GeneratedNames:
    """Labels of generated names.

    Args:
        labels: label by name.
        pattern: pattern that matches the names. Defaults to one compiled from ``labels``.
    """

    def __init__(self, labels: Mapping[str, str], pattern: re.Pattern[str] | None = None) -> None:
        self._labels = labels
        self._pattern = pattern or _compile_pattern(labels)

    def replace_in(self, text: str) -> str:
        """Replace the generated names in ``text`` by their labels."""
        if not self._labels:
            return text
        return self._pattern.sub(lambda found: self._labels.get(found[0], found[0]), text)

    def sort_generated(self, items: list[Any], normalized: list[Any]) -> list[Any]:
        """Sort ``normalized`` if all ``items`` are generated names.

        The API server returns such lists in the order of the random suffixes.
        """
        if len(items) > 1 and all(isinstance(item, str) and item in self._labels for item in items):
            return sorted(normalized)
        return normalized

    def with_labels(self, labels: Mapping[str, str]) -> GeneratedNames:
        """Return the same names with some labels replaced."""
        return GeneratedNames({**self._labels, **labels}, self._pattern)

    def names_in(self, obj: JsonObject) -> set[str]:
        """Generated names in ``obj``."""
        return set(self._pattern.findall(msgspec.json.encode(obj).decode())) if self._labels else set()


def _compile_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that prefers the longest name."""
    choice = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    return re.compile(rf"(?<![a-z0-9])(?:{choice})(?![a-z0-9])" if choice else r"(?!)")


NormalizerFactory = Callable[[GeneratedNames], Callable[[JsonObject], Any]]
"""Creates a function that normalizes an object with the given labels."""


def label_generated_names(
    objects: Sequence[JsonObject],
    normalizer_factory: NormalizerFactory,
    extra_prefixes: Mapping[str, str] | None = None,
) -> GeneratedNames:
    """Label the generated names of ``objects``, numbered where prefixes are equal.

    Args:
        objects: objects in wire form.
        normalizer_factory: creates the normalization used to compare objects.
        extra_prefixes: further generated names with their prefix, such as those of deleted objects.
    """
    named = {o["metadata"]["name"]: o for o in objects if generated_prefix(o["metadata"])}
    prefix_labels = _label_by_prefix({**(extra_prefixes or {}), **generated_prefixes(objects)})
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, obj in sorted(named.items()):
        groups[_group_key(obj, prefix_labels)].append(name)
    ambiguous = [group for group in groups.values() if len(group) > 1]
    return (
        _ColorRefinement(objects, named, ambiguous, normalizer_factory, prefix_labels).run()
        if ambiguous
        else prefix_labels
    )


def _label_by_prefix(prefixes: Mapping[str, str]) -> GeneratedNames:
    """Label names in order of length: a prefix may contain another name."""
    labels: dict[str, str] = {}
    names = GeneratedNames(labels, _compile_pattern(prefixes))
    for name in sorted(prefixes, key=len):
        labels[name] = f"{names.replace_in(prefixes[name])}*"
    return names


def _group_key(obj: JsonObject, names: GeneratedNames) -> tuple[str, ...]:
    metadata: JsonObject = obj["metadata"]
    return obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), names.replace_in(metadata["name"])


class _ColorRefinement:
    def __init__(
        self,
        objects: Sequence[JsonObject],
        named: Mapping[str, JsonObject],
        ambiguous: Sequence[Sequence[str]],
        normalizer_factory: NormalizerFactory,
        prefix_labels: GeneratedNames,
    ) -> None:
        self._named, self._ambiguous, self._normalizer_factory, self._prefix_labels = (
            named,
            ambiguous,
            normalizer_factory,
            prefix_labels,
        )
        self._ranks = {name: 0 for group in ambiguous for name in group}
        self._referrers: dict[str, list[JsonObject]] = {name: [] for name in self._ranks}
        self._referenced: set[str] = set()
        for obj in objects:
            for name in prefix_labels.names_in(obj) - {obj["metadata"]["name"]}:
                if name in self._ranks:
                    self._referrers[name].append(obj)
                    self._referenced.update((name, obj["metadata"]["name"]))

    def run(self) -> GeneratedNames:
        self._refine()
        for _ in range(_MAX_TIE_BREAKS):
            tied = next(
                (
                    same
                    for same in self._equivalence_classes()
                    if len(same) > 1 and self._referenced.intersection(same)
                ),
                None,
            )
            if tied is None:
                break
            for name in tied[1:]:
                self._ranks[name] += 1
            self._refine()
        for group in self._ambiguous:
            self._ranks.update({name: rank for rank, name in enumerate(sorted(group, key=self._sort_key))})
        return self._current_labels()

    def _sort_key(self, name: str) -> tuple[int, str]:
        return self._ranks[name], name

    def _equivalence_classes(self) -> list[list[str]]:
        ordered = (sorted(group, key=self._sort_key) for group in self._ambiguous)
        return [list(same) for group in ordered for _, same in groupby(group, key=self._ranks.__getitem__)]

    def _refine(self) -> None:
        before = -1
        while before != (before := len(self._equivalence_classes())):
            names = self._current_labels()
            keys = {name: self._key(name, names) for name in self._ranks}
            for group in self._ambiguous:
                ordered = sorted(keys[name] for name in group)
                self._ranks.update({name: bisect_left(ordered, keys[name]) for name in group})

    def _key(self, name: str, names: GeneratedNames) -> tuple[int, bytes, list[bytes]]:
        this = self._normalizer_factory(names.with_labels({name: _SELF_LABEL}))
        obj = canonical_json(self._normalizer_factory(names)(self._named[name]))
        return self._ranks[name], obj, sorted(canonical_json(this(referrer)) for referrer in self._referrers[name])

    def _current_labels(self) -> GeneratedNames:
        numbered = {name: rank for name, rank in self._ranks.items() if rank}
        labels = {name: f"{self._prefix_labels.replace_in(name)} ({rank + 1})" for name, rank in numbered.items()}
        return self._prefix_labels.with_labels(labels)
