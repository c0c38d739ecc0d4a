"""Actions of the planner, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from steersman_databases.engines.cluster_engine import DeclaredCluster


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Create PVCs and StatefulSet of a new instance."""

    instance: int


@dataclass(frozen=True, slots=True)
class RetryBootstrap:
    """Let the instance initialize the data although another bootstrap was claimed."""

    instance: int


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Scale the instance's StatefulSet to one pod."""

    instance: int


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Scale the instance's StatefulSet to zero."""

    instance: int


@dataclass(frozen=True, slots=True)
class RecreatePod:
    """Delete the pod, so that it is recreated from the current template. `because` ends a sentence."""

    instance: int
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveInstance:
    """Remove an instance. `because` ends a sentence. `failed`: its data are unusable."""

    instance: int
    reason: str
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class CancelRemoval:
    """Cancel an interrupted removal of an instance."""

    instance: int


@dataclass(frozen=True, slots=True)
class SwitchOver:
    """Make another instance the primary."""

    to: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestartServer:
    """Restart the server inside its pod."""

    instance: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResolveTarget:
    """Record the target of a switchover to any instance."""

    to: int


@dataclass(frozen=True, slots=True)
class FinishSwitchover:
    """Finish a requested switchover. `refused` is the reason if it failed."""

    to: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class FinishReplacement:
    """Finish a requested replacement. `refused` is the reason if it failed."""

    instance: str
    refusal: str = ""


Action: TypeAlias = (
    CreateInstance
    | RetryBootstrap
    | StartInstance
    | StopInstance
    | RecreatePod
    | RemoveInstance
    | CancelRemoval
    | SwitchOver
    | RestartServer
    | ResolveTarget
    | FinishSwitchover
    | FinishReplacement
)


@dataclass(frozen=True, slots=True)
class Wait:
    """No action is possible now. `reason` is a reason of condition Ready."""

    reason: Literal[
        "Creating",
        "InstanceNotReady",
        "RollingOut",
        "Degraded",
        "NoPrimary",
        "NoSynchronousStandby",
        "SwitchoverRejected",
        "Hibernating",
        "Hibernated",
        "Fenced",
        "Upgrading",
        "DiskFull",
        "Unschedulable",
        "ImageUnavailable",
        "InstanceCrashing",
        "PodRejected",
        "Recovering",
        "RecoveryFailed",
        "Restoring",
        "RestoreFailed",
        "ImageTooOld",
        "OperatorTooOld",
    ]
    message: str


def describe(cluster: DeclaredCluster, action: Action) -> str:
    """Description of an action in messages."""
    name = cluster.names.instance
    match action:
        case CreateInstance(ordinal):
            return f"creating instance {name(ordinal)}"
        case RetryBootstrap(ordinal):
            return f"retrying the bootstrap of instance {name(ordinal)}: it was interrupted"
        case StartInstance(ordinal):
            return f"starting instance {name(ordinal)}"
        case StopInstance(ordinal):
            return f"stopping instance {name(ordinal)}"
        case RecreatePod(ordinal, reason):
            return f"restarting instance {name(ordinal)}: {reason}"
        case RemoveInstance(ordinal, reason):
            return f"removing instance {name(ordinal)}: {reason}"
        case CancelRemoval(ordinal):
            return f"keeping instance {name(ordinal)}: its removal was interrupted"
        case SwitchOver(to, reason):
            return f"switching over to {name(to)}: {reason}"
        case RestartServer(ordinal, reason):
            return f"restarting the server of {name(ordinal)}: {reason}"
        case ResolveTarget(to):
            return f"switching over to {name(to)}: a user requested it"
        case FinishSwitchover(to):
            return f"the switchover to {to} has ended"
        case FinishReplacement(of):
            return f"the replacement of {of} has ended"
