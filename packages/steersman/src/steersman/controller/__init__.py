"""Controllers: what to watch, a queue of keys, and workers that reconcile them."""

from steersman.controller.builder import Builder
from steersman.controller.client import CachedClient
from steersman.controller.controller import Controller, ControllerOptions, ReconcileTimeout
from steersman.controller.create_or_patch import create_or_patch
from steersman.controller.current import ReconcileInfo, current_reconcile
from steersman.controller.events import EventRecorder
from steersman.controller.finalizers import add_finalizer, remove_finalizer
from steersman.controller.mapping import referenced_by
from steersman.controller.permissions import Permission
from steersman.controller.predicates import (
    ChangeFilter,
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    by_others,
    changed,
    created,
    deleted,
    deletion_started,
    generation_changed,
    has_label,
    labels_changed,
    matches,
    matches_labels,
    not_,
    resource_version_changed,
    updated,
)
from steersman.controller.queue import LOW, NORMAL, QueueShutDown, WorkQueue
from steersman.controller.reconciler import Context, Outcome, Reconciler, Request, Result
from steersman.controller.sources import Channel, Every, Source
from steersman.controller.triggers import Trigger

__all__ = [
    "LOW",
    "NORMAL",
    "Builder",
    "CachedClient",
    "ChangeFilter",
    "Channel",
    "Context",
    "Controller",
    "ControllerOptions",
    "EventRecorder",
    "Every",
    "Outcome",
    "Permission",
    "Predicate",
    "QueueShutDown",
    "ReconcileInfo",
    "ReconcileTimeout",
    "Reconciler",
    "Request",
    "Result",
    "Source",
    "Trigger",
    "WorkQueue",
    "add_finalizer",
    "all_of",
    "annotations_changed",
    "any_of",
    "by_others",
    "changed",
    "create_or_patch",
    "created",
    "current_reconcile",
    "deleted",
    "deletion_started",
    "generation_changed",
    "has_label",
    "labels_changed",
    "matches",
    "matches_labels",
    "not_",
    "referenced_by",
    "remove_finalizer",
    "resource_version_changed",
    "updated",
]
