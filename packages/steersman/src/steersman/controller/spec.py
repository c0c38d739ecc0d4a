"""The declaration of a controller, complete before its reconciler is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from steersman.controller.permissions import Permission
from steersman.controller.sources import Source
from steersman.meta import ApiResource, Object, ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of a controller.

    Attributes:
        max_concurrent_reconciles: number of workers. One object is never reconciled twice at the same time.
        base_retry_delay: seconds before the first retry. The delay doubles with each failure in a row.
        max_retry_delay: seconds; the upper limit of the delay.
        reconcile_timeout: seconds after which a reconcile is cancelled; None for no limit.
        needs_leader_election: True if the controller runs in the leader only.
    """

    max_concurrent_reconciles: int = 1
    base_retry_delay: float = 0.005
    max_retry_delay: float = 1000.0
    reconcile_timeout: float | None = None
    needs_leader_election: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSpec:
    """Everything that ``Builder`` collects about a controller.

    Attributes:
        name: the name in logs and metrics.
        resource: the API resource of the reconciled kind.
        get_cached: returns the cached object of a request, or None.
        options: settings.
        sources: sources of requests besides watches.
        source_filter: decides whether a request from a source is enqueued; None accepts all.
        owned_kinds: the kinds that the builder declared with ``owns``.
        prunable_kinds: those of them with ``prune=True``.
        permissions: the RBAC permissions that the controller needs.
        short_names: short names of the kind, for commands.
    """

    name: str
    resource: ApiResource
    get_cached: Callable[[ObjectKey], Object | None]
    options: ControllerOptions = ControllerOptions()
    sources: tuple[Source, ...] = ()
    source_filter: Callable[[ObjectKey], bool] | None = None
    owned_kinds: tuple[type[Object], ...] = ()
    prunable_kinds: tuple[type[Object], ...] = ()
    permissions: tuple[Permission, ...] = ()
    short_names: tuple[str, ...] = ()
