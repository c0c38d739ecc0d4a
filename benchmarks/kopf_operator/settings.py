"""What both operators on Kopf have in common."""

from __future__ import annotations

import os

import kopf


def configure(settings: kopf.OperatorSettings) -> None:
    """Sets what a user with thousands of objects sets."""
    # The default keeps progress in the status too, which schemas prune; Kopf's documentation advises this one.
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    settings.posting.enabled = os.environ.get("BENCHMARK_EVENTS") == "yes"
