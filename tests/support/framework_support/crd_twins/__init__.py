"""Kinds written twice: in Go with controller-gen markers, and in Python."""

from __future__ import annotations

from typing import Any

from framework_support.crd_twins import v1, v1alpha1, v1beta1
from framework_support.crd_twins.v1 import Versioned
from steersman.meta import Resource

TWINS: dict[str, tuple[type[Resource[Any, Any]], ...]] = {
    "builtins": (v1.Builtins,),
    "choices": (v1.Choice,),
    "deeps": (v1.Deep,),
    "fixeds": (v1.Fixed,),
    "listings": (v1.Lists,),
    "nesteds": (v1.Nested,),
    "opens": (v1.Open,),
    "scalars": (v1.Scalars,),
    "tasks": (v1.Task,),
    "templates": (v1.Template,),
    "unions": (v1.Union,),
    "versioneds": (v1alpha1.Versioned, v1beta1.Versioned, Versioned),
    "workloads": (v1.Workload,),
}
"""Versions of each kind by plural."""
