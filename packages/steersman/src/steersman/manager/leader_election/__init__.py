"""Leader election by a Lease, compatible with client-go.

``LeaderElector`` acquires and renews the Lease. ``TermStore`` gives each leadership a term for stores outside
Kubernetes. ``ElectionRunner`` runs an elector in a thread of its own, so that a busy event loop does not lose the
Lease. ``Fence`` rejects writes as soon as another replica could have become the leader.
"""

from steersman.manager.leader_election.elector import LeaderElection, LeaderElector, default_identity
from steersman.manager.leader_election.fence import Fence, FencedTransport, suspend_aware_clock
from steersman.manager.leader_election.runner import ElectionRunner, new_election_runner
from steersman.manager.leader_election.terms import TermStore, next_term

__all__ = [
    "ElectionRunner",
    "Fence",
    "FencedTransport",
    "LeaderElection",
    "LeaderElector",
    "TermStore",
    "default_identity",
    "new_election_runner",
    "next_term",
    "suspend_aware_clock",
]
