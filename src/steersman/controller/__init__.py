"""Controllers: what to watch, a queue of keys, and workers that reconcile them."""

from steersman.controller.builder import Builder
from steersman.controller.client import CachedClient
from steersman.controller.controller import Controller
from steersman.controller.create_or_patch import create_or_patch
from steersman.controller.events import EventRecorder
from steersman.controller.finalizers import add_finalizer, remove_finalizer
from steersman.controller.permissions import Permission
from steersman.controller.predicates import Predicate, generation_changed
from steersman.controller.queue import QueueShutDown, WorkQueue
from steersman.controller.reconciler import Context, Reconciler, Request, Result

__all__ = [
    "Builder",
    "CachedClient",
    "Context",
    "Controller",
    "EventRecorder",
    "Permission",
    "Predicate",
    "QueueShutDown",
    "Reconciler",
    "Request",
    "Result",
    "WorkQueue",
    "add_finalizer",
    "create_or_patch",
    "generation_changed",
    "remove_finalizer",
]
