"""What an informer holds: which namespaces, which objects of them, in which form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steersman.errors import ConfigurationError
from steersman.meta import Object

Transform = Callable[[Any], Any]
"""Gives the object to store for one that was read: smaller, never of another name, UID or resource version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a namespace are held, and in what form.

    Attributes:
        label_selector: such as ``app.kubernetes.io/managed-by=me``; empty: all. Source: "Labels and Selectors".
        field_selector: such as ``status.phase!=Succeeded``; empty: all. Source: "Field Selectors".
        transform: gives what is stored for what was read, so that a cache of large objects keeps only the parts
            that its controllers look at: ``lambda pod: replace(pod, spec=None)``. An object on which it fails is
            held whole, and that is logged.
    """

    label_selector: str = ""
    field_selector: str = ""
    transform: Transform | None = None

    @property
    def has_selector(self) -> bool:
        """Whether it leaves out any object."""
        return bool(self.label_selector or self.field_selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerOptions(Selection):
    """What the informer of one kind holds.

    Attributes:
        namespaces: only these; ``()`` is all of them; None: those of the cache. Nothing for a cluster-scoped kind.
        by_namespace: other selections for some of the namespaces. Alone, it also says which these are.
        all_secrets: an informer of whole Secrets that selects none of them is refused without this: it would hold
            every password of the cluster in memory, and needs the right to read them.
        resync: seconds after which subscribers are told of every object again, 10 % more or less; 0: never.
            A level-triggered controller needs it only for what no event tells, and is better off with a timer then.

    Example:
        ``InformerOptions(label_selector="app.kubernetes.io/managed-by=me", namespaces=("blue", "green"))``
    """

    namespaces: tuple[str, ...] | None = None
    by_namespace: Mapping[str, Selection] = field(default_factory=dict[str, Selection])
    all_secrets: bool = False
    resync: float = 0.0


@dataclass(frozen=True, slots=True)
class WatchScope:
    """What one reflector lists and watches: ``selection`` of ``namespace`` (empty: of all)."""

    namespace: str = ""
    selection: Selection = Selection()


def scopes_of(kind: type[Object], options: InformerOptions, namespaces: tuple[str, ...]) -> tuple[WatchScope, ...]:
    """What the reflectors of ``kind`` watch; ``namespaces`` are the cache's own.

    Raises:
        ConfigurationError: ``options`` contradict themselves, or would hold Secrets that nobody asked for.
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
            "an informer of all Secrets was asked for: narrow it by InformerOptions(label_selector=…), hold their "
            "metadata alone by metadata_only(Secret), or say InformerOptions(all_secrets=True)"
        )
    return scopes


def _select_namespaces(name: str, options: InformerOptions, namespaces: tuple[str, ...]) -> tuple[str, ...]:
    chosen = options.namespaces
    if chosen is None:
        chosen = tuple(options.by_namespace) or namespaces
    if "" in chosen:
        raise ConfigurationError(f"informer of {name}: a namespace has no name; () stands for all namespaces")
    unwatched = sorted(set(options.by_namespace) - set(chosen))
    if unwatched:
        raise ConfigurationError(f"informer of {name}: by_namespace names {unwatched}, which are not watched")
    return tuple(dict.fromkeys(chosen)) or ("",)


def _includes_secret_data(kind: type[Object]) -> bool:
    # A kind whose type has no data holds metadata alone.
    resource = kind.api_resource
    return (resource.group, resource.kind) == ("", "Secret") and bool(
        {"data", "content"} & set(kind.__struct_fields__)
    )
