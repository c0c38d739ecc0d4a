"""Whom a change concerns: from a watched object to the requests that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from steersman.cache import Informer
from steersman.controller.reconciler import Request
from steersman.meta import ApiResource, Object, ObjectKey

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)

MapFunc = Callable[[U], Iterable[Request]]
"""Gives the requests that a change of the object leads to."""

ReferencesFunc = Callable[[T], Iterable["str | ObjectKey"]]
"""Gives the objects that an object refers to: keys, or names in its own namespace."""


class ReferencedBy(Struct, Generic[T], frozen=True):
    """A mapping to the objects that refer to the one that changed; made by ``referenced_by``."""

    kind: type[T]
    references: ReferencesFunc[T] | str

    def require_kind(self, reconciled: type[Object]) -> None:
        """Raises ValueError if its requests are not for objects of the kind ``reconciled``."""
        if self.kind is not reconciled:
            expected, actual = reconciled.__name__, self.kind.__name__
            raise ValueError(f"referenced_by must name the reconciled kind, {expected}, not {actual}")

    def map_func(self, watched: type[Object], informer: Informer[T], name: str) -> MapFunc[Any]:
        """The mapping for changes of ``watched``; indexes what ``informer`` holds, as ``name``."""
        store = informer.store
        if isinstance(self.references, str):
            index = self.references
        else:
            index, references = name, self.references
            namespaced = watched.api_resource.namespaced
            store.add_index(index, lambda obj: _reference_values(obj, references, namespaced))
        return lambda changed: [found.key for found in store.by_index(index, str(changed.key))]


def referenced_by(kind: type[T], references: ReferencesFunc[T] | str) -> ReferencedBy[T]:
    """For ``Builder.watches``: a change concerns the objects of ``kind`` that refer to the one that changed.

    They are found by an index, so that it costs the same with ten objects and with ten thousand.

    Args:
        kind: the kind that the controller reconciles.
        references: gives what an object refers to, names being in its own namespace; or the name of an index
            declared by ``Builder.index``, whose values are keys such as ``sea/password``.

    Example:
        ``.watches(Secret, referenced_by(Database, lambda database: [database.spec.secret_name]))``
    """
    return ReferencedBy(kind, references)


def enqueue_owner(resource: ApiResource, *, any_owner: bool = False) -> MapFunc[Object]:
    """A change concerns the owner that lives at ``resource``: the one that controls the object, or any of them."""

    def owners(obj: Object) -> list[Request]:
        requests: list[Request] = []
        for owner in obj.metadata.owner_references:
            if not (owner.controller or any_owner) or owner.kind != resource.kind:
                continue
            # The version is not compared: an owner reference keeps the one it was written with.
            if owner.api_version.rpartition("/")[0] == resource.group:
                requests.append(ObjectKey(obj.metadata.namespace if resource.namespaced else "", owner.name))
        return requests

    return owners


def enqueue_object(obj: Object) -> tuple[Request]:
    """A change concerns the object that changed."""
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
