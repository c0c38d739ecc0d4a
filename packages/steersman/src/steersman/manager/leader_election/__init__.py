"""Leader election by a Lease, compatible with client-go.

``LeaderElector`` acquires and renews the Lease. ``ElectionRunner`` runs an elector in a thread of its own, so that a
busy event loop does not lose the Lease. ``Fence`` rejects writes as soon as another replica could have become the
leader.
"""

from steersman.manager.leader_election.elector import LeaderElection, LeaderElector, default_identity
from steersman.manager.leader_election.fence import Fence, FencedTransport
from steersman.manager.leader_election.runner import ElectionRunner, new_election_runner

__all__ = [
    "ElectionRunner",
    "Fence",
    "FencedTransport",
    "LeaderElection",
    "LeaderElector",
    "default_identity",
    "new_election_runner",
]
