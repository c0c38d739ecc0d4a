"""Handing the primary over: each may be asked once for a declaration, since each time all writes are held up.

Who is asked takes the request away when it is done, and when it refuses. So one that is gone although the primary is
who it was has been refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.steps import SwitchOver, Wait
from steersman_databases.engines.cluster import ClusterView

# The members take a request up within two seconds; after that long it would be seen as theirs, or not be there.
_TAKEN_UP_WITHIN = timedelta(seconds=10)
REFUSED = "the primary did not hand over to it; its log says why"


def declaration(cluster: ClusterView) -> str:
    """What tells one declaration of a cluster from another."""
    return f"{cluster.generation} {cluster.requests.restart}".rstrip()


def is_awaited(observed: Observed) -> bool:
    """Whether it may be too early to see a request that has just been made."""
    attempt = observed.attempt
    if attempt is None or not attempt.sent or attempt.ended or attempt.to == observed.members.leader:
        return False
    return observed.now - attempt.at < _TAKEN_UP_WITHIN


def has_just_failed(observed: Observed, to: int) -> bool:
    """Whether ``to`` should have become the primary, and nobody has said yet that it did not."""
    attempt = observed.attempt
    if attempt is None or not attempt.sent or attempt.ended:
        return False
    return attempt.to == to and not is_awaited(observed)


def asked(cluster: ClusterView, observed: Observed) -> frozenset[int]:
    """Who was asked for what is declared now, and did not take over."""
    attempt = observed.attempt
    if attempt is None or attempt.declared != declaration(cluster):
        return frozenset()
    return attempt.before | {attempt.to} if attempt.sent else attempt.before


def hand_over(
    cluster: ClusterView, observed: Observed, successors: Sequence[Instance], because: str
) -> SwitchOver | Wait | None:
    """Makes the first of ``successors`` the primary that was not asked for the same before.

    None where all were, and somebody asks for a switchover himself: that comes first then.
    """
    refused = asked(cluster, observed)
    if (to := next((i for i in successors if i.number not in refused), None)) is not None:
        return SwitchOver(to.number, because)
    if cluster.requests.switchover:
        return None
    names = ", ".join(sorted(cluster.names.instance(i.number) for i in successors))
    return Wait("SwitchoverRefused", f"{names} should be the primary, since {because}, and {REFUSED}")
