"""Execution of decisions.

Each operation takes time and may fail. The next inspection shows its result.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .group import group_config, group_status
from .group.decision import GroupMember, GroupView, MemberDecision, Operation
from .group.group_config import GroupConfig
from .group.leader import GroupEpoch
from .kubernetes import KubernetesApi
from .publishing import StatusPublisher
from .server.certificates import CertificateReload
from .server.parameters import ParameterSync
from .server.process import MySQLServer, options


def next_group_name(view: GroupView, name: str) -> str:
    """Return the name of the group to found.

    MySQL numbers transactions by this name. After a forced recovery the lost transactions have the numbers that
    would
    come next. A member that returns with them must differ from members with transactions of the new group.
    """
    return str(uuid.uuid4()) if view.is_forced else name


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Operations of one member, in a thread of their own.

    Attributes:
        path: path of the group's ConfigMap.
        group_epoch: also used for the leader's record.
        additional_status: further content of the status, maintained by the main loop.
    """

    server: MySQLServer
    local: group_status.LocalServer
    parameters: ParameterSync
    certificates: CertificateReload
    api: KubernetesApi
    publisher: StatusPublisher
    path: str
    group_epoch: GroupEpoch
    additional_status: dict[str, Any] = field(default_factory=dict[str, Any])

    def operation(self, decision: MemberDecision, view: GroupView, agreed: GroupConfig) -> Callable[[], None] | None:
        """Return the function of a decision, or None for none."""
        operations: Mapping[Operation, Callable[[], None]] = {
            "Initialise": self.server.initialise,
            "Clone": lambda: self._clone(view, agreed, decision.target),
            "Start": lambda: self._start(agreed),
            "Found": lambda: self._bootstrap_group(view, agreed, decision),
            "Join": lambda: self._join(view, agreed, decision),
            "Leave": self.local.leave_group,
            "HandOver": lambda: self._switch_over(view, decision.target),
            "Stop": self.server.stop,
        }
        return operations.get(decision.operation)

    def _start(self, agreed: GroupConfig) -> None:
        """Start the server without parameters that prevent a start.

        A wrong parameter must not cause an outage.
        """
        own = options(self.server.paths, agreed.name)
        rejected = self.server.rejected_parameters(own, agreed.parameters)
        self.certificates.load()
        accepted = {name: value for name, value in agreed.parameters.items() if name not in rejected}
        self.parameters.record_start(agreed.parameters, rejected)
        self.server.start(own, accepted)

    def _bootstrap_group(self, view: GroupView, agreed: GroupConfig, decision: MemberDecision) -> None:
        """Report the state, write the ConfigMap, and found the group.

        Only one member succeeds with the write. The write also consumes the consent. After an interruption the
        member finds
        the new name of the group, and no consent.
        """
        me, name = self._as_joining(view, decision), next_group_name(view, agreed.name)
        target = replace(
            view.store.with_member(me.instance),
            epoch=view.epoch + 1,
            leader=me.instance,
            leader_uuid=me.uuid,
            leader_view="",
            forced_recovery_instance=None,
        )
        self.api.patch(self.path, group_config.group_patch(target, agreed.version, name))
        self.group_epoch.enter(target.epoch)
        self._start_group(name, founding=True)

    def _join(self, view: GroupView, agreed: GroupConfig, decision: MemberDecision) -> None:
        """Join the group.

        A new member is recorded in the ConfigMap before it joins.
        """
        self._as_joining(view, decision)
        donor = view.store.with_member(view.own.instance)
        if donor != view.store:
            self.api.patch(self.path, group_config.group_patch(donor, agreed.version))
        self.group_epoch.enter(donor.epoch)
        seeds = ",".join(m.address for m in view.online())
        self.local.set_global("group_replication_group_seeds", seeds)
        self._start_group(agreed.name, founding=False)

    def _as_joining(self, view: GroupView, decision: MemberDecision) -> GroupMember:
        me = replace(view.own, state="Joining")
        self.publisher.publish(me, decision.reason, additional=self.additional_status)
        return me

    def _start_group(self, name: str, *, founding: bool) -> None:
        """Start Group Replication.

        After a failure the member certainly is not in the group.

        A start that is still running must not be reported as offline.
        """
        # The server may have started with another name: of an abandoned group, or from a new ConfigMap before the
        # primary corrected it.
        self.local.set_global("group_replication_group_name", name)
        try:
            self.local.start_group(founding=founding)
        except group_status.ServerQueryFailed:
            try:
                self.local.leave_group()
            except group_status.ServerQueryFailed:
                self.server.stop()
            raise

    def _clone(self, view: GroupView, agreed: GroupConfig, donor: int | None) -> None:
        [found] = [m for m in view.others if m.instance == donor]
        host, _, port = found.address.rpartition(":")
        # The server does not accept IPv6 addresses of donors (Reference Manual, clone_valid_donor_list), but names.
        host = found.name if host.startswith("[") else host
        # The present data stay until the copy is complete.
        self.server.stop()
        self.server.clone_from(options(self.server.paths, agreed.name), host, int(port))

    def _switch_over(self, view: GroupView, to: int | None) -> None:
        asked = view.store.switchover is not None and not view.is_stopping
        try:
            for target in (m for m in view.others if m.instance == to and m.state == "Online"):
                self.local.set_primary(target.uuid)
        finally:
            if asked:
                # The new primary shows the success. A refused switchover must not be repeated forever.
                self.api.patch(self.path, {"metadata": {"annotations": {group_config.SWITCHOVER: None}}})
