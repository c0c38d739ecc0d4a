"""Maps events of watched objects to requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from steersman.cache import Informer
from steersman.controller.request import Request
from steersman.meta import ApiResource, Object, ObjectKey

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)

MapFunc = Callable[[U], Iterable[ObjectKey]]
"""Returns the requests to enqueue for an event of an object."""

ReferencesFunc = Callable[[T], Iterable["str | ObjectKey"]]
"""Returns referenced objects: keys, or names in the same namespace."""


class ReferencedBy(Struct, Generic[T], frozen=True):
    """Maps an object to those that refer to it: see ``referenced_by``."""

    kind: type[T]
    references: ReferencesFunc[T] | str

    def require_kind(self, reconciled: type[Object]) -> None:
        """Raise ValueError unless the requests are for the kind ``reconciled``."""
        if self.kind is not reconciled:
            expected, actual = reconciled.__name__, self.kind.__name__
            raise ValueError(f"referenced_by must name the reconciled kind, {expected}, not {actual}")

    def map_func(self, watched: type[Object], informer: Informer[T], name: str) -> MapFunc[Any]:
        """Return the mapping for ``watched``; add the index ``name`` to ``informer``."""
        store = informer.store
        if isinstance(self.references, str):
            index = self.references
        else:
            index, references = name, self.references
            namespaced = watched.api_resource.namespaced
            store.add_index(index, lambda obj: _reference_values(obj, references, namespaced))
        return lambda changed: [found.key for found in store.by_index(index, str(changed.key))]


def referenced_by(kind: type[T], references: ReferencesFunc[T] | str) -> ReferencedBy[T]:
    """Enqueue the objects of ``kind`` that refer to the changed one.

    Pass it to ``Builder.watches``. An index finds the objects, at the same cost for ten objects and ten thousand.

    Args:
        kind: the kind that the controller reconciles.
        references: returns the objects that an object refers to: keys, or names in its own namespace. Or the name
            of an index declared by ``Builder.index``, whose values are keys such as ``orders/password``.

    Example:
        ``.watches(Secret, referenced_by(Database, lambda database: [database.spec.secret_name]))``
    """
    return ReferencedBy(kind, references)


def enqueue_owner(resource: ApiResource, *, any_owner: bool = False) -> MapFunc[Object]:
    """Enqueue the controller owner of kind ``resource``, or any such owner."""

    def owners(obj: Object) -> list[Request]:
        requests: list[Request] = []
        for owner in obj.metadata.owner_references:
            if not (owner.controller or any_owner) or owner.kind != resource.kind:
                continue
            # The version is ignored: an owner reference keeps the version it was written with.
            if owner.api_version.rpartition("/")[0] == resource.group:
                requests.append(Request(obj.metadata.namespace if resource.namespaced else "", owner.name))
        return requests

    return owners


def enqueue_object(obj: Object) -> tuple[ObjectKey]:
    """Enqueue the changed object itself."""
    return (obj.key,)


def _reference_values(
    obj: Object, references: Callable[[Any], Iterable[str | ObjectKey]], namespaced: bool
) -> list[str]:
    default_namespace = obj.metadata.namespace if namespaced else ""
    return [
        str(each if isinstance(each, ObjectKey) else ObjectKey(default_namespace, each))
        for each in references(obj)
        if each
    ]
