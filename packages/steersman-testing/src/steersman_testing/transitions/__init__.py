"""Transition tests: drive an operator through generated changes of an object.

``explore(kind, in_memory(kind, setup))`` generates changes from the schema of a kind: sets, alters and removes each
field, violates each constraint and misspells field names. It tries boundary values, rolls back after a bad value,
recreates the object and changes several fields at once. After each change the operator must settle. Its state
must equal that of a new object with the same spec, or the user must see an error in a condition or an Event. A
failure is shrunk to a minimal sequence and reported with the line that replays it.

The system under test implements ``SystemUnderTest``: in memory with virtual time (``in_memory``), or on a real
cluster (``on_cluster``).

Not generated: changes of metadata, of status and of other objects, concurrent users, and faults. See
``steersman_testing.simulation`` for faults.

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
