"""Status of a member: on its pod, and for the kubelet's probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steersman_instance.gtids import GtidSet

from .group import group_config
from .group.decision import GroupMember
from .kubernetes import ApiUnavailable, KubernetesApi, PatchConflict

_REPUBLISH_INTERVAL_SECONDS = (
    60.0  # seconds after which it is written again, because another client may have removed it
)


@dataclass
class StatusPublisher:
    """Writes the status of the pod at `path` with this UID.

    A previous pod of the same name must not write any more. Both threads may use it, and the last call wins.
    """

    api: KubernetesApi
    path: str
    uid: str
    report_file: Path
    _published: tuple[str, str] | None = field(default=None, init=False)
    _published_at: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def publish(self, me: GroupMember, reason: str, *, majority: bool = False, additional: Mapping[str, Any]) -> None:
        """Write the status. Raises ApiUnavailable.

        Args:
            additional: further content for users and for the operator.
        """
        # In a group the transactions change with each write, and no decision depends on them.
        member = replace(me, gtids=GtidSet()) if me.state in ("Online", "Recovering") else me
        role = "primary" if me.state == "Online" and me.primary and majority else "replica"
        reported = (group_config.member_annotation(member, reason=reason, majority=majority, **additional), role)
        with self._lock:
            if reported == self._published and time.monotonic() < self._published_at + _REPUBLISH_INTERVAL_SECONDS:
                return
            message, role = reported
            metadata = {
                "uid": self.uid,
                "annotations": {group_config.MEMBER: message},
                "labels": {group_config.ROLE_LABEL: role},
            }
            self._published = None
            try:
                self.api.patch(self.path, {"metadata": metadata})
            except PatchConflict as error:
                raise ApiUnavailable(f"this pod is another's by now: {error}") from error
            finally:
                # The exporter reads the file, also while the API server is unreachable.
                replace_text(self.report_file, message)
            self._published, self._published_at = reported, time.monotonic()


def write_probe_file(file: Path, *, ready: bool, reason: str) -> None:
    """Write the file that `steersman-member` reads: time, readiness, reason.

    The time is in seconds since boot, as in /proc/uptime.
    """
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    replace_text(file, f"{int(now)} {'ready' if ready else 'waiting'} {reason}\n")


def replace_text(file: Path, text: str) -> None:
    """Replace the content of a file in one step.

    Readers never see a part of it. Two threads may replace different files of one folder at once.
    """
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(text)
    fresh.replace(file)
