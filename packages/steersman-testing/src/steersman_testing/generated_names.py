"""Generated names, told so that two worlds that are alike are told alike.

A name that the API server makes of ``generateName`` ends in chance. It is told by what it begins with, wherever it
occurs: in the object itself, in what refers to it, and as a part of longer names. Objects that are then of the same
name are numbered by what they are and by what refers to them, never by chance.

The numbering is colour refinement: objects that look alike share a number, others that refer to differently numbered
ones look different, and so on until nothing changes; then one of those that still look alike is taken out, and it
begins again. Source: McKay and Piperno, "Practical graph isomorphism, II", 2014.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from steersman_testing.apiserver.storage import Event
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.comparable import encoded

_LONGEST_PREFIX = 58
_CHANCE = "[a-z0-9]{5}"
# Alike in every respect are seldom more; those beyond are numbered as they come.
_MOST_CHOICES = 20
_THIS = "(this)"


def generated_prefix(metadata: JsonObject) -> str:
    """What a generated name begins with; empty where the name was given, with ``generateName`` or without."""
    prefix = (metadata.get("generateName") or "")[:_LONGEST_PREFIX]
    return prefix if prefix and re.fullmatch(re.escape(prefix) + _CHANCE, metadata.get("name", "")) else ""


def generated_prefixes(objects: Iterable[JsonObject]) -> dict[str, str]:
    """What the generated names of ``objects`` begin with, by name."""
    metadata = (obj["metadata"] for obj in objects)
    return {found["name"]: prefix for found in metadata if (prefix := generated_prefix(found))}


def ever_generated(history: Iterable[Event]) -> dict[str, str]:
    """As ``generated_prefixes``, of all that a server ever held."""
    return generated_prefixes(e.after.object for e in history if e.before is None and e.after is not None)


class GeneratedNames:
    """How generated names are told.

    Args:
        labels: by name.
        pattern: finds the names; None makes it of ``labels``.
    """

    def __init__(self, labels: Mapping[str, str], pattern: re.Pattern[str] | None = None) -> None:
        self._labels = labels
        self._pattern = pattern or _pattern_of(labels)

    def text(self, text: str) -> str:
        """``text``, the generated names in it told."""
        if not self._labels:
            return text
        return self._pattern.sub(lambda found: self._labels.get(found[0], found[0]), text)

    def items(self, items: list[Any], told: list[Any]) -> list[Any]:
        """``told``, which are ``items`` in comparable form; ordered, where the items are nothing but generated names,
        since those are sorted by chance."""
        if len(items) > 1 and all(isinstance(item, str) and item in self._labels for item in items):
            return sorted(told)
        return told

    def relabelled(self, labels: Mapping[str, str]) -> GeneratedNames:
        """The same names, some of them told otherwise."""
        return GeneratedNames({**self._labels, **labels}, self._pattern)

    def mentioned(self, obj: JsonObject) -> set[str]:
        """The generated names in ``obj``."""
        return set(self._pattern.findall(msgspec.json.encode(obj).decode())) if self._labels else set()


def _pattern_of(names: Iterable[str]) -> re.Pattern[str]:
    """Finds the longest of ``names`` at each place: the name of a Job is the beginning of its pods' names."""
    choice = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    return re.compile(rf"(?<![a-z0-9])(?:{choice})(?![a-z0-9])" if choice else r"(?!)")


Telling = Callable[[GeneratedNames], Callable[[JsonObject], Any]]
"""Gives what brings an object into its comparable form, in which generated names are told as they are given."""


def tell(objects: Sequence[JsonObject], telling: Telling, others: Mapping[str, str] | None = None) -> GeneratedNames:
    """How the generated names of ``objects`` are told, those of objects that look alike with a number.

    Args:
        objects: in wire form.
        telling: what is compared of them.
        others: further generated names, such as those of objects that are gone, with what they begin with.
    """
    named = {o["metadata"]["name"]: o for o in objects if generated_prefix(o["metadata"])}
    bare = _bare({**(others or {}), **generated_prefixes(objects)})
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, obj in sorted(named.items()):
        groups[_place(obj, bare)].append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    return _Numbering(objects, named, alike, telling, bare).result() if alike else bare


def _bare(prefixes: Mapping[str, str]) -> GeneratedNames:
    """A prefix may hold a generated name in turn, as that of a Job's pods does; such a name is shorter."""
    labels: dict[str, str] = {}
    names = GeneratedNames(labels, _pattern_of(prefixes))
    for name in sorted(prefixes, key=len):
        labels[name] = f"{names.text(prefixes[name])}*"
    return names


def _place(obj: JsonObject, names: GeneratedNames) -> tuple[str, ...]:
    metadata: JsonObject = obj["metadata"]
    return obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), names.text(metadata["name"])


class _Numbering:
    def __init__(
        self,
        objects: Sequence[JsonObject],
        named: Mapping[str, JsonObject],
        alike: Sequence[Sequence[str]],
        telling: Telling,
        bare: GeneratedNames,
    ) -> None:
        self._named, self._alike, self._telling, self._bare = named, alike, telling, bare
        self._ranks = {name: 0 for group in alike for name in group}
        self._referrers: dict[str, list[JsonObject]] = {name: [] for name in self._ranks}
        self._bound: set[str] = set()
        for obj in objects:
            for name in bare.mentioned(obj) - {obj["metadata"]["name"]}:
                if name in self._ranks:
                    self._referrers[name].append(obj)
                    self._bound.update((name, obj["metadata"]["name"]))

    def result(self) -> GeneratedNames:
        self._refine()
        for _ in range(_MOST_CHOICES):
            tied = next((same for same in self._classes() if len(same) > 1 and self._bound.intersection(same)), None)
            if tied is None:
                break
            for name in tied[1:]:
                self._ranks[name] += 1
            self._refine()
        for group in self._alike:
            self._ranks.update({name: rank for rank, name in enumerate(sorted(group, key=self._order))})
        return self._names()

    def _order(self, name: str) -> tuple[int, str]:
        return self._ranks[name], name

    def _classes(self) -> list[list[str]]:
        ordered = (sorted(group, key=self._order) for group in self._alike)
        return [list(same) for group in ordered for _, same in groupby(group, key=self._ranks.__getitem__)]

    def _refine(self) -> None:
        before = -1
        while before != (before := len(self._classes())):
            names = self._names()
            keys = {name: self._key(name, names) for name in self._ranks}
            for group in self._alike:
                ordered = sorted(keys[name] for name in group)
                self._ranks.update({name: bisect_left(ordered, keys[name]) for name in group})

    def _key(self, name: str, names: GeneratedNames) -> tuple[int, bytes, list[bytes]]:
        this = self._telling(names.relabelled({name: _THIS}))
        obj = encoded(self._telling(names)(self._named[name]))
        return self._ranks[name], obj, sorted(encoded(this(referrer)) for referrer in self._referrers[name])

    def _names(self) -> GeneratedNames:
        numbered = {name: rank for name, rank in self._ranks.items() if rank}
        labels = {name: f"{self._bare.text(name)} ({rank + 1})" for name, rank in numbered.items()}
        return self._bare.relabelled(labels)
