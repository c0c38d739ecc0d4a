"""What to do next with a cluster, from what its nodes say. It speaks with nobody, so that it is easy to test."""

from redis_operator.plan.members import Goal, Member, View
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
    Shrink,
    Step,
    Wait,
)

__all__ = [
    "AddSlots",
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
    "Shrink",
    "Step",
    "View",
    "Wait",
    "next_step",
]
