"""Remembers the last applied configuration of each object.

An unchanged apply is then skipped without comparing every field.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from steersman.meta import ApiResource, Object, ObjectKey

_MAX_ENTRIES = 10_000


class ApplyCache:
    """Maps each object to the apply configuration that last produced it.

    A comparison of all fields takes longer. It also finds a difference wherever the server adds defaults to an atomic
    list, such as the ``volumeClaimTemplates`` of a StatefulSet. A lost entry, after a restart for example, costs one
    comparison or one request.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[ApiResource, ObjectKey], tuple[int, tuple[Any, ...]]] = OrderedDict()

    def record(self, declaration: Hashable, obj: Object) -> None:
        """Record that ``declaration`` (JSON and owner) produced ``obj`` or equals it."""
        entry_key = (type(obj).api_resource, obj.key)
        self._entries[entry_key] = (hash(declaration), _declared_state(obj))
        self._entries.move_to_end(entry_key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def is_current(self, declaration: Hashable, obj: Object) -> bool:
        """Return True if applying ``declaration`` again would change nothing.

        It was the last apply, and the object has not changed since.
        """
        entry = self._entries.get((type(obj).api_resource, obj.key))
        return entry is not None and entry == (hash(declaration), _declared_state(obj))


def _declared_state(obj: Object) -> tuple[Any, ...]:
    """Return the metadata that changes with every declared field.

    It does not change with the status.
    """
    meta = obj.metadata
    # Kinds without a generation are compared by resourceVersion, which changes with the status as well.
    version = meta.generation or meta.resource_version
    # The generation of some kinds is constant, such as PriorityClass. Losing a field changes our managedFields.
    owned = meta.managed_fields
    return meta.uid, version, meta.labels, meta.annotations, meta.finalizers, meta.owner_references, owned
