"""Settings of both Kopf operators."""

from __future__ import annotations

import os

import kopf


def configure(settings: kopf.OperatorSettings) -> None:
    """Apply the settings that suit thousands of objects."""
    # By default Kopf also stores progress in the status, which structural schemas prune. Kopf's documentation
    # recommends annotations.
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    settings.posting.enabled = os.environ.get("BENCHMARK_EVENTS") == "yes"
