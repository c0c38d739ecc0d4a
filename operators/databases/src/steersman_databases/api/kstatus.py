"""Conditions ``Reconciling`` and ``Stalled``, which kstatus reads. Pure.

Both are abnormal-true: they are absent unless they hold, and at most one of them holds.
Source: ``pkg/kstatus`` of ``kubernetes-sigs/cli-utils``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from msgspec.structs import replace

from steersman.meta import Condition, find_condition, is_true, set_condition

RECONCILING = "Reconciling"
STALLED = "Stalled"
READY = "Ready"
KSTATUS_CONDITIONS = (RECONCILING, STALLED)

STALLED_REASONS = frozenset(
    {
        *("AdministratorRejected", "AdministratorSecretMissing", "AlreadyExists", "BackupFailed"),
        *("BadRequest", "BucketNotFound", "CertificateNotTrusted", "ClockSkewed", "ConfirmMismatch"),
        *("ConsentMismatch", "ConsentRequired", "CredentialsRejected", "DataLost", "DiskFull"),
        *("ErrantTransactions", "ExtensionUnavailable", "Failed", "Fenced", "FinalBackupFailed", "Forbidden"),
        *("ImageTooOld", "ImageUnavailable", "ImmutableProperty", "InstanceCrashing", "Invalid"),
        *("InvalidName", "NameConflict", "NotExpandable", "NotPermitted", "NotSupported"),
        *("OperatorTooOld", "OwnedByAnother", "OwnerSecretInvalid"),
        *("ParameterRejected", "Paused", "Planned", "PodRejected", "PoolerCrashing", "PreCheckFailed"),
        *("ProvisionFailed", "QuotaExceeded", "RecoveryFailed", "ReferenceNotPermitted"),
        *("RetainedDataMismatch", "RolledBack", "SecretInvalid", "SecretNotFound", "ServerCrashing"),
        *("SourceMismatch", "SourceNotPermitted", "SqlFailed"),
        *("StorageClassMismatch", "StoreFull", "SwitchoverRejected", "UnsupportedStore"),
        *("UnsupportedVersion", "VolumeLost", "WrongAddressing", "WrongEncryptionKey", "WrongRegion"),
    }
)
"""Reasons with which only a person can continue. With all others the operator proceeds or retries.

Objects that do not exist yet are no such reason: GitOps applies them at the same time.
"""
_SUMMARIES = frozenset({"Degraded", "InstanceNotReady", "NoPrimary"})
"""Reasons of ``Ready`` whose cause is another condition."""
_DECLARED = frozenset({"Hibernated"})
"""Reasons of a declared state that is not ``Ready``."""
_RESIZING = frozenset({"FileSystemResizePending", "Resizing"})

C = TypeVar("C", bound=Condition)


class SetCondition(Protocol[C]):
    """Returns conditions with one of them set, such as ``set_condition``."""

    def __call__(self, conditions: Iterable[C], condition: C, now: datetime, /) -> tuple[C, ...]: ...


def with_kstatus(
    conditions: Iterable[C],
    now: datetime,
    *,
    summary: str = READY,
    causes: Collection[str] = (),
    independent: Collection[str] = (),
    setter: SetCondition[C] = set_condition,
) -> tuple[C, ...]:
    """Return the conditions with ``Reconciling``, ``Stalled`` or neither.

    Reason and message are those of the summary. A paused object that is not as declared is stalled by its pause.

    Args:
        conditions: all conditions of the object.
        now: the time of transitions.
        summary: type of the condition that holds when the object is as declared.
        causes: reasons behind the summary. Defaults to its own reason, or to those of other conditions.
        independent: conditions without which the summary holds.
        setter: sets a condition.
    """
    current = tuple(conditions)
    source, type_ = find_condition(current, summary), ""
    if is_true(current, "Paused"):
        if source is None or source.status != "True":
            source, type_ = find_condition(current, "Paused"), STALLED
    elif source is not None:
        type_ = _type_for(source, causes or _causes_of(source, current, independent))
    kept = tuple(each for each in current if each.type not in KSTATUS_CONDITIONS or each.type == type_)
    if not type_ or source is None:
        return kept
    return setter(kept, replace(source, type=type_, status="True"), now)


def _causes_of(
    summary: Condition, conditions: Collection[Condition], independent: Collection[str]
) -> Collection[str]:
    """Return the reasons that decide whether a person must act."""
    resized = find_condition(conditions, "VolumesResized")
    if summary.reason == "DiskFull" and resized is not None and resized.reason in _RESIZING:
        return (resized.reason,)
    if summary.reason not in _SUMMARIES:
        return (summary.reason,)
    return {c.reason for c in conditions if c.status == "False" and c.type not in independent}


def _type_for(summary: Condition, causes: Collection[str]) -> str:
    """Return the type of the condition that holds, or ""."""
    if summary.status == "True" or summary.reason in _DECLARED:
        return ""
    # A backup or restore that has failed does not run again.
    has_failed = summary.type != READY and summary.status == "False"
    return STALLED if has_failed or STALLED_REASONS.intersection(causes) else RECONCILING
