"""What can be done to a cluster at once, as values: the planner's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from steersman_databases.engines.cluster import ClusterView


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Make claims and StatefulSet of a new instance."""

    instance: int


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Let the instance make the data, although somebody said that it does."""

    instance: int


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Let the StatefulSet run its pod."""

    instance: int


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Let the StatefulSet run no pod."""

    instance: int


@dataclass(frozen=True, slots=True)
class RenewPod:
    """Delete the pod, so that it is made anew from the present template. ``because`` ends a sentence."""

    instance: int
    because: str


@dataclass(frozen=True, slots=True)
class RetireInstance:
    """Take an instance away for good. ``because`` ends a sentence; ``failed``: its data are of no use."""

    instance: int
    because: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class KeepInstance:
    """Take back that an instance is taken away: that was cut off, and it is not to go now."""

    instance: int


@dataclass(frozen=True, slots=True)
class SwitchOver:
    """Make another instance the primary."""

    to: int
    because: str


@dataclass(frozen=True, slots=True)
class RestartServer:
    """Restart the server within its pod."""

    instance: int
    because: str


@dataclass(frozen=True, slots=True)
class ChooseSwitchover:
    """Write down which instance a switchover to any goes to."""

    to: int


@dataclass(frozen=True, slots=True)
class EndSwitchover:
    """A requested switchover is done, or ``refused`` for that reason."""

    to: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class EndReplacement:
    """A requested replacement is done, or ``refused`` for that reason."""

    of: str
    refused: str = ""


Step: TypeAlias = (
    CreateInstance
    | BeginAnew
    | StartInstance
    | StopInstance
    | RenewPod
    | RetireInstance
    | KeepInstance
    | SwitchOver
    | RestartServer
    | ChooseSwitchover
    | EndSwitchover
    | EndReplacement
)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to be done before something else happens. ``reason`` is one of the condition Ready."""

    reason: Literal[
        "Creating",
        "InstanceNotReady",
        "RollingOut",
        "Degraded",
        "NoPrimary",
        "NoSynchronousStandby",
        "SwitchoverRefused",
        "Hibernating",
        "Hibernated",
        "Fenced",
        "Upgrading",
        "DiskFull",
        "Unschedulable",
        "ImageUnavailable",
        "InstanceCrashing",
        "InstanceRefused",
    ]
    message: str


def words_of(cluster: ClusterView, step: Step) -> str:
    """What is being done, for people."""
    name = cluster.names.instance
    match step:
        case CreateInstance(number):
            return f"making instance {name(number)}"
        case BeginAnew(number):
            return f"having instance {name(number)} begin anew: its first start was cut off"
        case StartInstance(number):
            return f"starting instance {name(number)}"
        case StopInstance(number):
            return f"stopping instance {name(number)}"
        case RenewPod(number, because):
            return f"restarting instance {name(number)}: {because}"
        case RetireInstance(number, because):
            return f"removing instance {name(number)}: {because}"
        case KeepInstance(number):
            return f"keeping instance {name(number)}: its removal was cut off"
        case SwitchOver(to, because):
            return f"making {name(to)} the primary: {because}"
        case RestartServer(number, because):
            return f"restarting the server of {name(number)}: {because}"
        case ChooseSwitchover(to):
            return f"making {name(to)} the primary: it was asked for"
        case EndSwitchover(to):
            return f"the switchover to {to} ended"
        case EndReplacement(of):
            return f"the replacement of {of} ended"
