"""Loading of optional features. The callers declare what they need as protocols."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_kubectl() -> Any:
    """Import the package ``kubectl`` and return it.

    Each caller assigns the result to a protocol of its own, which lists the functions that it calls.
    """
    return import_module("steersman_testing.apiserver.kubectl")
