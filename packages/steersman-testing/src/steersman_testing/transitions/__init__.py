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

from steersman_testing.transitions.changes import Change, Edit, Story
from steersman_testing.transitions.cluster import ClusterPatience, on_cluster
from steersman_testing.transitions.exploration import Report, TransitionFailed, Unwell, explore
from steersman_testing.transitions.hints import Budget, Hints
from steersman_testing.transitions.memory import InMemorySystem, Patience, in_memory
from steersman_testing.transitions.oracles import Finding
from steersman_testing.transitions.plan import Coverage
from steersman_testing.transitions.states import normalised
from steersman_testing.transitions.system import Observation, System, Systems
from steersman_testing.transitions.walk import Failure

__all__ = [
    "Budget",
    "Change",
    "ClusterPatience",
    "Coverage",
    "Edit",
    "Failure",
    "Finding",
    "Hints",
    "InMemorySystem",
    "Observation",
    "Patience",
    "Report",
    "Story",
    "System",
    "Systems",
    "TransitionFailed",
    "Unwell",
    "explore",
    "in_memory",
    "normalised",
    "on_cluster",
]
