"""What was applied, or would have changed nothing: what that takes long to tell, or is not told by the object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from steersman.meta import ApiResource, Object, ObjectKey, encode

_MAX_ENTRIES = 10_000


class ApplyCache:
    """Remembers of each object the apply configuration that it is as declared by.

    To compare them takes long, and does not help where the server completed what was applied, such as the claim
    templates of a StatefulSet. It saves work and nothing else: what is forgotten, at a restart above all, is compared
    or applied once more.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[ApiResource, ObjectKey], tuple[int, tuple[Any, ...]]] = OrderedDict()

    def record(self, document: Mapping[str, Any], obj: Object) -> None:
        """``obj`` is what the server made of ``document``, or would not change by it."""
        entry_key = (type(obj).api_resource, obj.key)
        self._entries[entry_key] = (hash(encode(document)), _declared_state(obj))
        self._entries.move_to_end(entry_key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def is_current(self, document: Mapping[str, Any], obj: Object) -> bool:
        """Whether ``document`` was the last that was applied to ``obj``, and nobody has changed the object since."""
        entry = self._entries.get((type(obj).api_resource, obj.key))
        return entry is not None and entry == (hash(encode(document)), _declared_state(obj))


def _declared_state(obj: Object) -> tuple[Any, ...]:
    """What changes with all that an apply configuration can declare, and not with the status."""
    meta = obj.metadata
    # Kinds that do not count the changes of their spec are told apart by every change.
    version = meta.generation or meta.resource_version
    return meta.uid, version, meta.labels, meta.annotations, meta.finalizers, meta.owner_references
