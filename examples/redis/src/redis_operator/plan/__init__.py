"""Planner of the next step, from the reports of the nodes.

The planner is a pure function without I/O, which makes it easy to test.
"""

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
