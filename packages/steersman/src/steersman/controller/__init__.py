"""Controllers: watches, a work queue, and workers that reconcile.

``RequestReconciler`` is implemented by the author of an operator. ``reconcile`` receives a ``Request``, the key of an
object, and may run at any time. It reads the current state and applies the desired state.

``Builder`` declares a controller: the reconciled kind, owned and watched kinds, sources, options and RBAC
permissions. ``Manager.controller`` returns one.

``Controller`` takes requests from its ``WorkQueue`` and calls the reconciler. Failed requests are retried with
back-off.

Map functions (``referenced_by``) map an event to requests, predicates filter events, and a ``Source`` adds requests
from outside of Kubernetes. A ``Trigger`` records why a request was enqueued.

``EventRecorder`` records Events for users. ``current_reconcile`` returns metadata of the running reconcile.
"""

from steersman.controller.builder import Builder
from steersman.controller.controller import Controller, ReconcileTimeout
from steersman.controller.create_or_patch import create_or_patch
from steersman.controller.events import EventRecorder
from steersman.controller.finalizers import add_finalizer, remove_finalizer
from steersman.controller.handlers import referenced_by
from steersman.controller.permissions import Permission
from steersman.controller.predicates import (
    Predicate,
    PredicateFunc,
    all_of,
    annotations_changed,
    any_of,
    deletion_started,
    field_changed,
    generation_changed,
    has_label,
    labels_changed,
    matches_labels,
    not_,
    not_own_write,
    on_create,
    on_delete,
    on_update,
    resource_version_changed,
    where,
)
from steersman.controller.queue import LOW_PRIORITY, NORMAL_PRIORITY, QueueShutDown, WorkQueue
from steersman.controller.reconcile_info import ReconcileInfo, current_reconcile
from steersman.controller.reconciler import (
    ReconcileOutcome,
    Reconciler,
    ReconcilerContext,
    RequestReconciler,
    Result,
)
from steersman.controller.request import Request
from steersman.controller.sources import Channel, Enqueue, Source, Ticker
from steersman.controller.spec import ControllerOptions, ControllerSpec
from steersman.controller.threads import BlockingContext, ReconcileCancelled
from steersman.controller.triggers import Trigger

__all__ = [
    "LOW_PRIORITY",
    "NORMAL_PRIORITY",
    "BlockingContext",
    "Builder",
    "Channel",
    "Controller",
    "ControllerOptions",
    "ControllerSpec",
    "Enqueue",
    "EventRecorder",
    "Permission",
    "Predicate",
    "PredicateFunc",
    "QueueShutDown",
    "ReconcileCancelled",
    "ReconcileInfo",
    "ReconcileOutcome",
    "ReconcileTimeout",
    "Reconciler",
    "ReconcilerContext",
    "Request",
    "RequestReconciler",
    "Result",
    "Source",
    "Ticker",
    "Trigger",
    "WorkQueue",
    "add_finalizer",
    "all_of",
    "annotations_changed",
    "any_of",
    "create_or_patch",
    "current_reconcile",
    "deletion_started",
    "field_changed",
    "generation_changed",
    "has_label",
    "labels_changed",
    "matches_labels",
    "not_",
    "not_own_write",
    "on_create",
    "on_delete",
    "on_update",
    "referenced_by",
    "remove_finalizer",
    "resource_version_changed",
    "where",
]
