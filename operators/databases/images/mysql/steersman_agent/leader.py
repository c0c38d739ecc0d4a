"""What a primary does for clients to find it, and for those who found a group after it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steersman_pod import leading
from steersman_pod.api_server import carry_out

from . import group, store
from .decision import Store
from .kubernetes import ApiServer, Conflict, Unavailable, named
from .log import Log
from .server import Place

_AGAIN = 30.0  # seconds after which it is looked whether all still stands


class Joined:
    """Which group the server was last brought into, by its `epoch`, which stands on its volume.

    There it outlives the store: the next group is of a later epoch in any case.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self.epoch = int(file.read_text())
        except (OSError, ValueError):
            self.epoch = 0

    def enter(self, epoch: int) -> None:
        """To be called before it is in that group."""
        fresh = self._file.with_suffix(".new")
        with fresh.open("w") as writing:
            writing.write(f"{epoch}\n")
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(self._file)
        self.epoch = epoch

    def superseded(self, known: Store, view: str) -> bool:
        """Whether another was founded since, while `view` is that of this one: by consent, and this one was not seen.

        Its founder has not written its view down yet: so the epochs count. Others of the former group may be met,
        and joined, by one that knows of the new one: so the views count, too. What is of an earlier epoch was written
        by one who did not know of this group: the store was lost since.
        """
        return known.epoch > self.epoch or (known.epoch == self.epoch and group.another(view, known.leader_view))


class Leader:
    """Writes down who leads, then fills the slices, once in each view of the group and again from time to time."""

    def __init__(
        self,
        pod: leading.Pod,
        cluster: str,
        place: Place,
        local: group.LocalServer,
        api: ApiServer,
        path: str,
        joined: Joined,
        log: Log,
    ) -> None:
        self._pod, self._place, self._local, self._api, self._path, self._log = pod, place, local, api, path, log
        self._joined, self._owner = joined, leading.Owner("MySQLCluster", "mysql", cluster)
        self._led, self._at = "", 0.0

    def lead(self, look: group.Look | None, known: Store) -> None:
        """What follows from this look, and from what is `known` of the store.

        Where nobody's view stands in the store it was lost, and everybody waits for who leads to write it anew.
        """
        if look is None or not look.primary or not look.majority:
            self._led = ""
            return
        if self._led == look.view and known.leader_view and time.monotonic() < self._at + _AGAIN:
            return
        try:
            if self._written_down():
                self._fill_slices(look.uuid)
                self._led, self._at = look.view, time.monotonic()
        except (Unavailable, Conflict, group.Unreachable, OSError) as error:
            self._log.say("leading", f"as primary: {error}")

    def _written_down(self) -> bool:
        """Whether it stands there that this one leads.

        The store is read before the server is asked, and written as it was read: who became primary after this one
        writes after it, or has written before and is seen to be of a later view.
        """
        config_map = self._api.get(self._path)
        look = self._local.look()
        if config_map is None or not (look.primary and look.majority):
            return False
        agreed = store.agreed(config_map)
        known = agreed.store
        if group.older(look.view, known.leader_view):
            self._log.say("leading", f"instance {known.leader} leads in a later view than {look.view}")
            return False
        if self._joined.superseded(known, look.view):
            self._log.say("leading", f"another group was founded since: instance {known.leader} leads it")
            return False
        # Who starts with another name than the group's cannot join it.
        runs_as = self._local.value_of("group_replication_group_name")
        # Consent that nobody needed must not be what founds the next group.
        to = replace(
            known.with_member(self._place.instance),
            epoch=max(known.epoch, self._joined.epoch, 1),
            leader=self._place.instance,
            leader_uuid=look.uuid,
            leader_view=look.view,
            consent=None,
        )
        if to != known or runs_as != agreed.name:
            self._api.patch(self._path, store.written(to, agreed.version, runs_as))
            self._log.say("leading", f"leads in view {look.view}")
        return True

    def _fill_slices(self, uuid: str) -> None:
        def leadership(config_map: Mapping[str, Any]) -> str | None:
            known: Store = store.agreed(config_map).store
            if (known.leader, known.leader_uuid) != (self._place.instance, uuid):
                return None
            # The version tells this leadership from an earlier one of the same server.
            return f"{known.epoch} {known.leader} {known.leader_uuid} {config_map['metadata']['resourceVersion']}"

        for name in self._place.slices.read_text().split():
            path = named("endpointslices", self._pod.namespace, name, "apis/discovery.k8s.io/v1")
            carry_out(leading.take(self._pod, self._owner, path, self._path, leadership), self._api.answer)
