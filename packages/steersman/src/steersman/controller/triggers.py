"""Triggers: the reasons of a reconcile, stored raw and formatted on demand.

A waiting key keeps a few triggers at most. Several events of one object become one trigger, from the oldest state to
the newest, so a key keeps at most one old version of each object in memory. Triggers name fields and never show
values: the object may be a Secret.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from steersman.cache import InformerEvent
from steersman.meta import Object, ObjectKey
from steersman.meta.field_diff import FieldPath, field_differences

TriggerReason = Literal[
    "initial", "created", "updated", "deleted", "recreated", "resync", "requeue", "retry", "external", "request"
]
"""The reason of a trigger.

``initial`` is an object of the first list, and ``resync`` an event without a change. ``requeue`` is the result of
the last reconcile, and ``retry`` follows a failure. ``external`` is a request from a source, ``request`` any other
one."""

TriggerWriter = Literal["own", "other", "both"]
"""The client that wrote an update.

``own`` is this operator, ``other`` another client. ``both`` are merged updates of both."""

MAX_TRIGGERS = 6
"""Maximum number of triggers of a key; further ones are only counted."""

MAX_FIELDS = 12
"""Maximum number of changed fields in a trigger."""

# These change with every update.
_SERVER_MANAGED_FIELDS = frozenset(("metadata", name) for name in ("resourceVersion", "managedFields", "generation"))


class Trigger:
    """One reason for a reconcile.

    Attributes:
        origin: the declaration of the builder, such as ``owns``; the name of a source; or the class of the error
            that caused a retry.
        count: the number of events that were merged into it.
    """

    __slots__ = ("_change", "_has_both_writers", "_reason", "count", "origin")

    _reason: TriggerReason | None

    def __init__(
        self, origin: str, event: InformerEvent[Any] | None, reason: TriggerReason | None = None, count: int = 1
    ) -> None:
        self.origin = origin
        self.count = count
        self._change = event
        self._has_both_writers = False
        self._reason = reason

    @property
    def reason(self) -> TriggerReason:
        """The reason."""
        if self._reason is not None:
            return self._reason
        assert self._change is not None
        return reason_of(self._change)

    @property
    def kind(self) -> type[Object] | None:
        """The kind of the changed object, if any."""
        return None if self._change is None else type(cast("Object", self._change.object))

    @property
    def key(self) -> ObjectKey | None:
        """The key of the changed object, if any."""
        return None if self._change is None else self._change.object.key

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """Paths of changed fields, such as ``spec.replicas``; never values."""
        event = self._change
        if event is None or event.old is None or event.new is None:
            return ()
        return changed_fields(event.old, event.new)

    @property
    def writer(self) -> TriggerWriter | None:
        """The client that wrote an update; None for other reasons.

        A watch event may arrive before the response to our write. ``managedFields`` then shows that we own a changed
        field. An update that only removes fields, or changes list items, is then reported as ``other``.
        """
        event = self._change
        if event is None or self.reason != "updated":
            return None
        if self._has_both_writers:
            return "both"
        return "own" if event.from_own_write or _owns_change(event.old, event.new) else "other"

    def merge(self, other: Trigger) -> Trigger | None:
        """Merge with a later trigger; return None if the objects differ."""
        mine, theirs = self._change, other._change
        if self.origin != other.origin:
            return None
        if mine is None or theirs is None:
            same = mine is theirs and self._reason == other._reason
            return Trigger(self.origin, None, self._reason, self.count + other.count) if same else None
        previous, latest = mine.object, theirs.object
        if type(previous) is not type(latest) or previous.metadata.name != latest.metadata.name:
            return None
        if previous.metadata.namespace != latest.metadata.namespace:
            return None
        own = mine.from_own_write or theirs.from_own_write
        merged = InformerEvent(mine.old, theirs.new, is_initial_list=mine.is_initial_list, from_own_write=own)
        if merged.old is None and merged.new is None:
            # Created and deleted while the key waited: the deletion counts.
            merged = theirs
        trigger = Trigger(self.origin, merged, None, self.count + other.count)
        if self._has_both_writers or other._has_both_writers:
            trigger._has_both_writers = True
        elif mine.from_own_write is not theirs.from_own_write:
            # A resync is not a write.
            trigger._has_both_writers = not is_unchanged(mine) and not is_unchanged(theirs)
        return trigger

    def to_builtins(self) -> dict[str, Any]:
        """Return JSON for logs and debug endpoints."""
        result: dict[str, Any] = {"reason": self.reason, "origin": self.origin}
        if self.kind is not None:
            result |= {"kind": self.kind.api_resource.kind, "object": str(self.key)}
        if fields := self.changed_fields:
            result["fields"] = list(fields)
        if writer := self.writer:
            result["writer"] = writer
        if self.count > 1:
            result["count"] = self.count
        return result

    def __str__(self) -> str:
        words = [self.reason] if self.kind is None else [self.kind.api_resource.kind, str(self.key), self.reason]
        if self.kind is None and self.reason != self.origin:
            words.append(f"{'after' if self.reason == 'retry' else 'by'} {self.origin}")
        if self.count > 1:
            words.append(f"({self.count} times)")
        fields = self.changed_fields
        return f"{' '.join(words)}: {', '.join(fields)}" if fields else " ".join(words)

    def __repr__(self) -> str:
        return f"<Trigger {self}>"


REQUEST = Trigger("request", None, "request")
REQUEUE = Trigger("requeue", None, "requeue")
INITIAL = Trigger("initial", None, "initial")


def is_unchanged(event: InformerEvent[Any]) -> bool:
    """Return True if nothing changed, as in a resync."""
    old, new = event.old, event.new
    if old is None or new is None:
        return False
    if old is new:
        return True
    before, after = old.metadata, new.metadata
    version = after.resource_version
    return bool(version) and before.resource_version == version and before.uid == after.uid


def reason_of(event: InformerEvent[Any]) -> TriggerReason:
    """Return the reason of a trigger for ``event``."""
    old, new = event.old, event.new
    if new is None:
        return "deleted"
    if old is None:
        return "initial" if event.is_initial_list else "created"
    if old.metadata.uid != new.metadata.uid:
        return "recreated"
    return "resync" if is_unchanged(event) else "updated"


def _owns_change(old: Object | None, new: Object | None) -> bool:
    """Return True if our ``managedFields`` of ``new`` contain a changed field.

    An update by another client removes our ownership of the fields that it changes.
    """
    if old is None or new is None or not new.metadata.managed_fields:
        return False
    entries = [entry.fields_v1 for entry in new.metadata.managed_fields if bytes(entry.fields_v1)]
    owned = [cast("dict[str, Any]", msgspec.json.decode(entry)) for entry in entries]
    paths = [
        each.path
        for each in field_differences(old, new)
        if each.new is not None and each.path[:2] not in _SERVER_MANAGED_FIELDS
    ]
    return any(_contains(fields, path) for fields in owned for path in paths)


def _contains(fields: dict[str, Any], path: FieldPath) -> bool:
    """Return True if ``fieldsV1`` has ``path``, or an atomic field above it."""
    for step in path:
        if f"f:{step}" not in fields:
            return False
        fields = fields[f"f:{step}"]
        if not fields:
            return True
    return True


def changed_fields(old: object, new: object) -> tuple[str, ...]:
    """Return the paths of the fields in which two objects differ.

    The list has at most ``MAX_FIELDS`` paths, and then ``…``. It does not contain resourceVersion, generation and
    managedFields. Lists of different lengths count as one field.
    """
    found: list[str] = []
    for difference in field_differences(old, new):
        if difference.path[:2] in _SERVER_MANAGED_FIELDS:
            continue
        if len(found) == MAX_FIELDS:
            found.append("…")
            break
        found.append(_format_path(difference.path))
    return tuple(found)


def _format_path(path: FieldPath) -> str:
    """``spec.ports[0].name``; other names than identifiers in brackets."""
    text = ""
    for step in path:
        plain = isinstance(step, str) and step.replace("_", "").replace("-", "").isalnum()
        text += f".{step}" if plain and text else str(step) if plain or not text else f"[{step}]"
    return text or "."
