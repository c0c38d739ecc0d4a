"""Generated transitions: an operator is driven through the changes that users make, made of a kind's schema.

``explore(kind, in_memory(kind, setup))`` changes object after object: sets, alters and removes each field, violates
each constraint, misspells names, goes to the bounds, goes back after a mistake, deletes and creates again, changes
several fields at once. After each change the operator must come to rest, in the state in which a new object of the
same spec ends, or with an error that the user can see. What fails is made as small as it gets, and told with the one
line that does it again.

A system is anything with the four methods of ``System``: in memory and virtual time (``in_memory``), or a real
cluster (``on_cluster``).

Not tried: changes of metadata, of status, and of what other objects say; two users at once; faults of the cluster
(see ``steersman_testing.simulation``).

Source: Gu et al., "Acto: Automatic End-to-End Testing for Operation Correctness of Cloud System Management",
SOSP 2023.
"""

from steersman_testing.transitions.cluster_system import ClusterSettleOptions, on_cluster
from steersman_testing.transitions.exploration import ExplorationReport, TransitionFailed, UnhealthyStart, explore
from steersman_testing.transitions.exploration_plan import Coverage
from steersman_testing.transitions.hints import Budget, Hints
from steersman_testing.transitions.memory_system import InMemorySystem, SettleOptions, in_memory
from steersman_testing.transitions.observed_state import normalize_state
from steersman_testing.transitions.oracles import OracleFinding
from steersman_testing.transitions.spec_changes import ChangeSequence, FieldEdit, SpecChange
from steersman_testing.transitions.system_under_test import Observation, SystemFactory, SystemUnderTest
from steersman_testing.transitions.trial import ExplorationFailure

__all__ = [
    "Budget",
    "ChangeSequence",
    "ClusterSettleOptions",
    "Coverage",
    "ExplorationFailure",
    "ExplorationReport",
    "FieldEdit",
    "Hints",
    "InMemorySystem",
    "Observation",
    "OracleFinding",
    "SettleOptions",
    "SpecChange",
    "SystemFactory",
    "SystemUnderTest",
    "TransitionFailed",
    "UnhealthyStart",
    "explore",
    "in_memory",
    "normalize_state",
    "on_cluster",
]
