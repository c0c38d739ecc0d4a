"""Who owns which field: ``metadata.managedFields``, kept as sets of paths.

Source: ``sigs.k8s.io/structured-merge-diff/v6/merge`` and ``k8s.io/apimachinery/pkg/util/managedfields``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Literal, NamedTuple

import msgspec

from steersman.errors import ApiError, StatusCause
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields.sets import (
    Difference,
    FieldSet,
    Path,
    compare,
    from_fields_v1,
    path_text,
    to_fields_v1,
)
from steersman_testing.apiserver.fields.shapes import Shape
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

# Who writes without a field manager is called by the beginning of the User-Agent, and that is the client's own.
UNNAMED = "steersman"
# What the server sets or the URL says is nobody's.
NOBODYS: frozenset[Path] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class ManagerKey(NamedTuple):
    """Tells managers apart. An applier is the same whatever version it applies; an updater is not."""

    manager: str
    operation: Literal["Apply", "Update"]
    subresource: str = ""
    api_version: str = ""

    def __str__(self) -> str:
        text = msgspec.json.encode(self.manager).decode()
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


class Owned(NamedTuple):
    """The fields of one manager, since when, and in which version of the API they were set.

    The time is empty where the manager has not changed anything: he has declared what was so already.
    """

    fields: FieldSet
    api_version: str
    time: str


Managers = Mapping[ManagerKey, Owned]


class Reach(NamedTuple):
    """Where a write to an object, or to a subresource of it, changes anything: what it resets, it does not own.

    Attributes:
        roots: the fields of the object that it changes; None: all.
        resets: what of these it leaves as it is.
    """

    roots: FieldSet | None = None
    resets: FieldSet = frozenset()

    def of(self, paths: Set[Path]) -> Set[Path]:
        """Those of ``paths`` that such a write can own."""
        owned = paths - NOBODYS
        if self.roots is None and not self.resets:
            return owned
        return {path for path in owned if self._has(path)}

    def _has(self, path: Path) -> bool:
        root = path[:1]
        if root in self.resets or path[:2] in self.resets:
            return False
        return self.roots is None or root in self.roots


def as_read(managers: Managers) -> Managers:
    """``managers`` as a write finds them: of two entries of one name, as a scale makes them, the newer one."""
    if all(k.operation == "Apply" or k.api_version == owned.api_version for k, owned in managers.items()):
        return managers
    return {k: o for k, o in managers.items() if k.operation == "Apply" or k.api_version == o.api_version}


Translate = Callable[[str, JsonObject], tuple[JsonObject, Shape] | None]
"""An object in another version, and its shape there; None where there is no such version. May raise ApiError."""


class FieldChange:
    """What a write changes, as each version of the object tells it: managers own fields of the version they wrote in.

    Args:
        old: the object before it, in ``api_version``.
        new: the object after it.
        shape: of both.
        translate: where there are other versions.
    """

    def __init__(
        self, old: JsonObject, new: JsonObject, shape: Shape, api_version: str, translate: Translate | None = None
    ) -> None:
        self._sides = old, new
        self._translate = translate
        self.api_version = api_version
        self._found: dict[str, Difference | None] = {api_version: compare(old, new, shape)}

    @property
    def own(self) -> Difference:
        """In the version that it is written in."""
        found = self._found[self.api_version]
        assert found is not None
        return found

    def told_in(self, api_version: str) -> Difference | None:
        """In another version; None where there is none such. Raises ApiError: the object does not fit there."""
        if self._translate is None:
            return self.own
        if api_version not in self._found:
            old, new = (self._translate(api_version, side) for side in self._sides)
            found = None if old is None or new is None else compare(old[0], new[0], new[1])
            self._found[api_version] = found
        return self._found[api_version]


def own_changes(managers: Managers, key: ManagerKey, change: FieldChange, *, time: str, reach: Reach) -> Managers:
    """The managers after ``key`` wrote by POST, PUT or a patch: it owns what it changed, others lose that."""
    changes = change.own
    result = _disown(managers, key, change)
    former = managers[key].fields if key in managers else frozenset[Path]()
    fields = (former - changes.removed) | reach.of(changes.added | changes.modified)
    return _with(result, managers, key, fields, change.api_version, time)


def own_applied(
    managers: Managers, key: ManagerKey, fields: FieldSet, *, api_version: str, time: str
) -> dict[ManagerKey, Owned]:
    """The managers after ``key`` applied a configuration that sets ``fields``."""
    others = {k: owned for k, owned in managers.items() if k != key}
    return {**others, key: Owned(fields, api_version, time)} if fields else others


def resolve_conflicts(managers: Managers, key: ManagerKey, change: FieldChange, *, force: bool) -> Managers:
    """Takes from the other managers what ``change`` alters.

    Raises:
        ApiError: 409, unless ``force``, with a cause per field and manager.
    """
    disputed: dict[ManagerKey, FieldSet] = {}
    for other, owned in managers.items():
        changes = None if other == key else change.told_in(owned.api_version)
        if changes is not None and (touched := owned.fields & (changes.added | changes.modified)):
            disputed[other] = touched
    if disputed and not force:
        raise _conflict(disputed)
    return _disown(managers, key, change)


def _disown(managers: Managers, key: ManagerKey, change: FieldChange) -> dict[ManagerKey, Owned]:
    left: dict[ManagerKey, Owned] = {}
    for other, owned in managers.items():
        if other != key:
            changes = change.told_in(owned.api_version)
            if changes is None:
                continue
            owned = owned._replace(fields=owned.fields - changes.added - changes.modified - changes.removed)
        if owned.fields:
            left[other] = owned
    return left


def _with(
    result: dict[ManagerKey, Owned],
    managers: Managers,
    key: ManagerKey,
    fields: Set[Path],
    api_version: str,
    time: str,
) -> dict[ManagerKey, Owned]:
    former = managers.get(key)
    if not fields:
        result.pop(key, None)
    elif former is None or former.fields != fields or former.api_version != api_version:
        result[key] = Owned(frozenset(fields), api_version, time)
    return result


def _conflict(disputed: Mapping[ManagerKey, FieldSet]) -> ApiError:
    pairs = [(key, path) for key in sorted(disputed, key=str) for path in sorted(disputed[key])]
    causes = [
        StatusCause(reason="FieldManagerConflict", message=f"conflict with {key}", field=path_text(path))
        for key, path in pairs
    ]
    if len(pairs) == 1:
        key, path = pairs[0]
        message = f"Apply failed with 1 conflict: conflict with {key}: {path_text(path)}"
    else:
        lines = [
            line
            for key in sorted(disputed, key=str)
            for line in (f"conflicts with {key}:", *(f"- {path_text(p)}" for p in sorted(disputed[key])))
        ]
        message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
    return failures.apply_conflict(causes, message)


def sent_managers(metadata: JsonObject, old: Managers) -> Managers:
    """The managers that a write goes on from: those of the body, if it tells any, and otherwise those of ``old``.

    An empty list, or one of an empty entry, resets them; what makes no sense is passed over. Source: "Server-Side
    Apply", "Clearing managedFields"; ``decodeLiveOrNew`` of apimachinery's managedfields.
    """
    sent, old = metadata.get("managedFields"), as_read(old)
    if not is_list(sent):
        return old
    if sent in ([], [{}]):
        return {}
    found = dict(_parsed(e) for e in sent if _makes_sense(e))
    return found if found and len(found) == len(sent) else old


def _makes_sense(entry: Any) -> bool:
    return is_map(entry) and entry.get("operation") in ("Apply", "Update") and is_map(entry.get("fieldsV1"))


def _parsed(entry: JsonObject) -> tuple[ManagerKey, Owned]:
    version, operation = entry.get("apiVersion", ""), entry["operation"]
    told = entry.get("manager", ""), operation, entry.get("subresource", "")
    key = ManagerKey(*told, version if operation == "Update" else "")
    return key, Owned(from_fields_v1(entry["fieldsV1"]), version, entry.get("time", ""))


def render(managers: Managers) -> list[JsonObject]:
    """The wire form, oldest first."""
    entries: list[JsonObject] = []
    for key, owned in sorted(managers.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0].manager)):
        entry: JsonObject = {
            "manager": key.manager,
            "operation": key.operation,
            "apiVersion": owned.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(owned.fields),
        }
        if owned.time:
            entry["time"] = owned.time
        if key.subresource:
            entry["subresource"] = key.subresource
        entries.append(entry)
    return entries
