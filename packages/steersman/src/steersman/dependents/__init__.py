"""Dependents: objects that an owner declares, in steps that wait for readiness.

``Dependents.apply`` applies the steps, reports what blocks the next one, and prunes objects that are no longer
declared. It keeps no state: each call compares the declaration with the cluster.
"""

from steersman.dependents.declaration import Dependent, Step
from steersman.dependents.dependents import DEPENDENT_OF_LABEL, Dependents
from steersman.dependents.readiness import Readiness, default_readiness
from steersman.dependents.state import BlockingDependent, DependentsState, PrunedObject

__all__ = [
    "DEPENDENT_OF_LABEL",
    "BlockingDependent",
    "Dependent",
    "Dependents",
    "DependentsState",
    "PrunedObject",
    "Readiness",
    "Step",
    "default_readiness",
]
