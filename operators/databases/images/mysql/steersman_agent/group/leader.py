"""Records of the primary for clients, and for founders of a group."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steersman_pod import rw_endpoints
from steersman_pod.api_client import run_requests

from ..kubernetes import ApiUnavailable, KubernetesApi, PatchConflict, object_path
from ..log import DeduplicatedLog
from ..server.process import ServerPaths
from . import group_config, group_status
from .decision import GroupState

_REWRITE_INTERVAL_SECONDS = 30.0  # seconds after which the records are checked again


class GroupEpoch:
    """Epoch of the server's last group, in a file on its volume.

    There it survives the loss of the ConfigMap, so the next group always has a later epoch.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self.epoch = int(file.read_text())
        except (OSError, ValueError):
            self.epoch = 0

    def enter(self, epoch: int) -> None:
        """Record the epoch before the server enters the group."""
        fresh = self._file.with_suffix(".new")
        with fresh.open("w") as writing:
            writing.write(f"{epoch}\n")
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(self._file)
        self.epoch = epoch

    def is_superseded(self, known: GroupState, view: str) -> bool:
        """Return True if another group was founded since, by consent.

        Its founder may not have recorded the view yet, so the epochs count. A member that knows of the new group may
        meet and join members of the previous one, so the views count, too. A record with an earlier epoch comes from
        a member that did not know this group, because the ConfigMap was lost.

        Args:
            view: view of the server's own group.
        """
        return known.epoch > self.epoch or (
            known.epoch == self.epoch and group_status.is_different_group(view, known.leader_view)
        )


class LeaderPublisher:
    """Records the leader and fills the slices, in each view and periodically."""

    def __init__(
        self,
        pod: rw_endpoints.PodIdentity,
        cluster: str,
        paths: ServerPaths,
        local: group_status.LocalServer,
        api: KubernetesApi,
        path: str,
        group_epoch: GroupEpoch,
        log: DeduplicatedLog,
    ) -> None:
        self._pod, self._paths, self._local, self._api, self._path, self._log = pod, paths, local, api, path, log
        self._group_epoch, self._owner = group_epoch, rw_endpoints.ClusterIdentity("MySQLCluster", "mysql", cluster)
        self._led_view, self._led_at = "", 0.0

    def publish(self, status: group_status.ServerStatus | None, known: GroupState) -> None:
        """Update the records after an inspection.

        A ConfigMap without a view was lost, and all members wait until the leader writes it again.

        Args:
            known: last known content of the ConfigMap.
        """
        if status is None or not status.is_primary or not status.has_majority:
            self._led_view = ""
            return
        if (
            self._led_view == status.view
            and known.leader_view
            and time.monotonic() < self._led_at + _REWRITE_INTERVAL_SECONDS
        ):
            return
        try:
            if self._record_leader():
                self._fill_slices(status.uuid)
                self._led_view, self._led_at = status.view, time.monotonic()
        except (ApiUnavailable, PatchConflict, group_status.ServerQueryFailed, OSError) as error:
            self._log.log("leading", f"as primary: {error}")

    def _record_leader(self) -> bool:
        """Return True if this member is recorded as leader.

        The ConfigMap is read before the server is queried, and written with that version. A later primary writes
        afterwards, or its record has a later view.
        """
        config_map = self._api.get(self._path)
        status = self._local.query_status()
        if config_map is None or not (status.is_primary and status.has_majority):
            return False
        agreed = group_config.read_group_config(config_map)
        known = agreed.state
        if group_status.is_older_view(status.view, known.leader_view):
            self._log.log("leading", f"instance {known.leader} leads in a later view than {status.view}")
            return False
        if self._group_epoch.is_superseded(known, status.view):
            self._log.log("leading", f"another group was founded since: instance {known.leader} leads it")
            return False
        # A member that starts with another name cannot join the group.
        runs_as = self._local.value_of("group_replication_group_name")
        # An unused consent must not found the next group.
        to = replace(
            known.with_member(self._paths.instance),
            epoch=max(known.epoch, self._group_epoch.epoch, 1),
            leader=self._paths.instance,
            leader_uuid=status.uuid,
            leader_view=status.view,
            forced_recovery_instance=None,
        )
        if to != known or runs_as != agreed.name:
            self._api.patch(self._path, group_config.group_patch(to, agreed.version, runs_as))
            self._log.log("leading", f"leads in view {status.view}")
        return True

    def _fill_slices(self, uuid: str) -> None:
        def leader_term_of(config_map: Mapping[str, Any]) -> str | None:
            known: GroupState = group_config.read_group_config(config_map).state
            if (known.leader, known.leader_uuid) != (self._paths.instance, uuid):
                return None
            # The version distinguishes this leadership from an earlier one of the same server.
            return f"{known.epoch} {known.leader} {known.leader_uuid} {config_map['metadata']['resourceVersion']}"

        for name in self._paths.slices.read_text().split():
            path = object_path("endpointslices", self._pod.namespace, name, "apis/discovery.k8s.io/v1")
            run_requests(
                rw_endpoints.claim_slice(self._pod, self._owner, path, self._path, leader_term_of), self._api.send
            )
