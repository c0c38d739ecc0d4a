"""What to do next with a cluster, from what its nodes say. It speaks with nobody, so that it is easy to test."""

from redis_operator.plan.members import ClusterView, Goal, Member
from redis_operator.plan.planner import next_step
from redis_operator.plan.steps import (
    AddSlots,
    Done,
    Failover,
    Forget,
    Meet,
    Move,
    Release,
    Replace,
    Replicate,
    Reset,
    ScaleIn,
    Step,
    Wait,
)

__all__ = [
    "AddSlots",
    "ClusterView",
    "Done",
    "Failover",
    "Forget",
    "Goal",
    "Meet",
    "Member",
    "Move",
    "Release",
    "Replace",
    "Replicate",
    "Reset",
    "ScaleIn",
    "Step",
    "Wait",
    "next_step",
]
