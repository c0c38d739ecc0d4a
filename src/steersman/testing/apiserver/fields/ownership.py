"""Who owns which field: ``metadata.managedFields``, kept as sets of paths.

Source: ``sigs.k8s.io/structured-merge-diff/v6/merge`` and ``k8s.io/apimachinery/pkg/util/managedfields``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from steersman.errors import ApiError, StatusCause
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.fields.sets import FieldSet, Path, compare, from_fields_v1, path_text, to_fields_v1
from steersman.testing.apiserver.fields.shapes import Shape
from steersman.testing.apiserver.values import JsonObject, is_list, is_map

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
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
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

    def has(self, path: Path) -> bool:
        """Whether such a write can own ``path``."""
        root = path[:1]
        if path in NOBODYS or root in self.resets or path[:2] in self.resets:
            return False
        return self.roots is None or root in self.roots


def own_changes(
    managers: Managers,
    key: ManagerKey,
    old: JsonObject,
    new: JsonObject,
    shape: Shape,
    *,
    api_version: str,
    time: str,
    reach: Reach,
) -> Managers:
    """The managers after ``key`` wrote ``new`` by POST, PUT or a patch: it owns what it changed, others lose that."""
    changes = compare(old, new, shape)
    touched = changes.added | changes.modified
    result = _disown(managers, key, touched | changes.removed)
    former = managers[key].fields if key in managers else frozenset[Path]()
    gained = {p for p in touched if reach.has(p)}
    fields = (former - changes.removed) | gained
    return _with(result, managers, key, fields, api_version, time)


def own_applied(
    managers: Managers, key: ManagerKey, fields: FieldSet, *, api_version: str, time: str
) -> dict[ManagerKey, Owned]:
    """The managers after ``key`` applied a configuration that sets ``fields``."""
    others = {k: owned for k, owned in managers.items() if k != key}
    return {**others, key: Owned(fields, api_version, time)} if fields else others


def resolve_conflicts(
    managers: Managers, key: ManagerKey, live: JsonObject, merged: JsonObject, shape: Shape, *, force: bool
) -> Managers:
    """Takes from the other managers what the change from ``live`` to ``merged`` alters.

    Raises:
        ApiError: 409, unless ``force``, with a cause per field and manager.
    """
    changes = compare(live, merged, shape)
    touched = changes.added | changes.modified
    disputed = {k: owned.fields & touched for k, owned in managers.items() if k != key and owned.fields & touched}
    if disputed and not force:
        raise _conflict(disputed)
    return _disown(managers, key, touched | changes.removed)


def _disown(managers: Managers, key: ManagerKey, paths: set[Path]) -> dict[ManagerKey, Owned]:
    left = {k: o if k == key else o._replace(fields=o.fields - paths) for k, o in managers.items()}
    return {k: o for k, o in left.items() if o.fields}


def _with(
    result: dict[ManagerKey, Owned],
    managers: Managers,
    key: ManagerKey,
    fields: FieldSet | set[Path],
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
    sent = metadata.get("managedFields")
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
