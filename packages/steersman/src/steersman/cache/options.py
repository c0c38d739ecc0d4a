"""Options of informers: namespaces, selectors and transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steersman.errors import ConfigurationError
from steersman.meta import Object

Transform = Callable[[Any], Any]
"""Returns a smaller object to store. Name, UID and resourceVersion must stay the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects the objects of a namespace to cache, and transforms them.

    Attributes:
        label_selector: such as ``app.kubernetes.io/managed-by=me``. Defaults to all objects. Source: "Labels and
            Selectors".
        field_selector: such as ``status.phase!=Succeeded``. Defaults to all objects. Source: "Field Selectors".
        transform: drops fields that no controller reads, for caches of large objects: ``lambda pod: replace(pod,
            spec=None)``. If it raises an exception, the whole object is stored and the error is logged.
    """

    label_selector: str = ""
    field_selector: str = ""
    transform: Transform | None = None

    @property
    def has_selector(self) -> bool:
        """True if a selector is set."""
        return bool(self.label_selector or self.field_selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerOptions(Selection):
    """Options of the informer of one kind.

    Attributes:
        namespaces: the namespaces to watch; ``()`` for all. Defaults to those of the cache. Ignored for a
            cluster-scoped kind.
        by_namespace: other selections for some of the namespaces. Without ``namespaces``, only these are watched.
        all_secrets: allows an informer of Secrets without a selector. It would keep every password of the cluster
            in memory, and needs RBAC permission to read them.
        resync: seconds between two notifications of subscribers about every object, plus or minus 10 %. Defaults to
            0: never. A level-triggered controller that depends on external state should use a ``Ticker`` instead.

    Example:
        ``InformerOptions(label_selector="app.kubernetes.io/managed-by=me", namespaces=("blue", "green"))``
    """

    namespaces: tuple[str, ...] | None = None
    by_namespace: Mapping[str, Selection] = field(default_factory=dict[str, Selection])
    all_secrets: bool = False
    resync: float = 0.0


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The scope of one reflector: ``selection`` in ``namespace`` (empty: in all namespaces)."""

    namespace: str = ""
    selection: Selection = Selection()


def scopes_of(kind: type[Object], options: InformerOptions, namespaces: tuple[str, ...]) -> tuple[WatchScope, ...]:
    """Return the scopes of the reflectors of ``kind``.

    ``namespaces`` are those of the cache.

    Raises:
        ConfigurationError: ``options`` contradict themselves, or would cache all Secrets.
    """
    name = kind.api_resource.kind
    if not kind.api_resource.namespaced:
        scopes = (WatchScope("", options),)
    else:
        scopes = tuple(
            WatchScope(n, options.by_namespace.get(n, options)) for n in _select_namespaces(name, options, namespaces)
        )
    if _includes_secret_data(kind) and not options.all_secrets and not all(s.selection.has_selector for s in scopes):
        raise ConfigurationError(
            "informer of Secret would cache all Secrets: set InformerOptions(label_selector=…), cache "
            "metadata_only(Secret), or set InformerOptions(all_secrets=True)"
        )
    return scopes


def _select_namespaces(name: str, options: InformerOptions, namespaces: tuple[str, ...]) -> tuple[str, ...]:
    chosen = options.namespaces
    if chosen is None:
        chosen = tuple(options.by_namespace) or namespaces
    if "" in chosen:
        raise ConfigurationError(f"informer of {name}: a namespace is empty; use () for all namespaces")
    unwatched = sorted(set(options.by_namespace) - set(chosen))
    if unwatched:
        raise ConfigurationError(f"informer of {name}: by_namespace contains {unwatched}, missing in namespaces")
    return tuple(dict.fromkeys(chosen)) or ("",)


def _includes_secret_data(kind: type[Object]) -> bool:
    # A type without data is metadata only.
    resource = kind.api_resource
    return (resource.group, resource.kind) == ("", "Secret") and bool(
        {"data", "content"} & set(kind.__struct_fields__)
    )
