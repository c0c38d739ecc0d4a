"""The members of a cluster as Patroni tells them, and what they can be asked.

All that is known stands in Kubernetes: the annotation ``status`` of each pod, and Patroni's ConfigMaps. Only a
restart and a reload are asked of a member itself: Patroni takes them over its REST API alone.

Source: patroni/dcs/kubernetes.py and patroni/ha.py of 4.0.7 (annotations), its documentation "Patroni REST API".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.cache import CachedClient
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_databases.engines.cluster_names import ClusterNames
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.notes import annotate, endpoint_of, json_in, mapping, number_of, whole
from steersman_databases.engines.topology import (
    Member,
    Members,
    MemberState,
    PendingSetting,
    SwitchoverRequest,
)

from . import patroni, rest

_STATES: Mapping[str, MemberState] = {
    "running": "Running",
    "starting": "Starting",
    "restarting": "Starting",
    "initializing new cluster": "Starting",
    "running custom bootstrap script": "Starting",
    "creating replica": "Cloning",
    "stopping": "Stopped",
    "stopped": "Stopped",
    "crashed": "Crashed",
}
_PRIMARIES = frozenset({"primary", "master"})
_STORAGE = "databases.steersman.dev/storage"
"""On pods: how full its volumes are, as images/postgresql/watch.py tells it."""
ASKED = "databases.steersman.dev/asked-on"
"""On ``-failover``: which version of it the last request was made on. Patroni leaves it there."""


class PatroniTopology:
    """A `Topology` of clusters that Patroni runs."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client

    def observe(self, cluster: ObjectKey, pods: Sequence[Pod], store: Sequence[ConfigMap]) -> Members:
        """See `Topology.observe`."""
        return observe(cluster, pods, store)

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """See `Topology.configure`."""
        if members.settings == settings:
            return False
        config = {"config": json.dumps(settings)}
        await annotate(self._client, members, _names(members).store_config, config)
        return True

    async def switch_over(self, members: Members, to: int | None) -> None:
        """See `Topology.switch_over`."""
        names = _names(members)
        leader = None if members.leader is None else names.pod(members.leader).name
        candidate = None if to is None else names.pod(to).name
        version = members.store_versions.get(names.store_failover.name)
        asked = {"leader": leader, "member": candidate, ASKED: version}
        await annotate(self._client, members, names.store_failover, asked)

    async def forget_data(self, members: Members) -> None:
        """See `Topology.forget_data`: Patroni ends where the system identifier is another than it wrote down."""
        await annotate(self._client, members, _names(members).store_config, {"initialize": None})

    async def restart_server(self, members: Members, member: Member) -> None:
        """See `Topology.restart_server`."""
        await self._ask(members, member, "/restart", {})

    async def reload(self, members: Members, member: Member) -> None:
        """See `Topology.reload`."""
        await self._ask(members, member, "/reload", {})

    async def _ask(self, members: Members, member: Member, path: str, body: Mapping[str, Any]) -> None:
        names = _names(members)
        endpoint = await endpoint_of(self._client, member, patroni.REST_PORT)
        try:
            own = await self._client.live.get(Secret, names.operator_certificate)
            theirs = await self._client.live.get(Secret, names.server_certificate)
        except NotFound as error:
            raise ServerUnreachable(endpoint, f"the cluster's certificates are not there: {error}") from error
        await rest.post(endpoint, path, body, rest.trust(own.data, theirs.data))


def observe(cluster: ObjectKey, pods: Sequence[Pod], store: Sequence[ConfigMap]) -> Members:
    """What pods and ConfigMaps of a cluster tell of its members."""
    names = ClusterNames(cluster)
    told: Mapping[str, Mapping[str, str]] = {one.key.name: one.metadata.annotations for one in store}
    nothing: Mapping[str, str] = {}
    of_patroni = (names.store_config, names.store_leader, names.store_sync, names.store_failover)
    config, lock, sync, failover = (told.get(key.name, nothing) for key in of_patroni)
    standbys = frozenset(filter(None, (sync.get("sync_standby") or "").split(",")))
    history = json_in(config.get("history"), [])
    primary = lock.get("leader") or None
    reported = {pod.key.name: _status(pod) for pod in pods}
    position = _position(reported.get(primary or "", {}), lock)
    timeline = whole(reported.get(primary or "", {}).get("timeline"))
    members = [
        _member(pod, number, reported[pod.key.name], _Cluster(position, timeline, history, standbys))
        for pod in pods
        if (number := number_of(names, pod.key.name)) is not None
    ]
    return Members(
        cluster=cluster,
        members=sorted(members, key=lambda member: member.instance),
        leader=number_of(names, primary or ""),
        former_leader=None if primary else number_of(names, _former(sync, history)),
        leadership=f"{lock.get('transitions', '0')} {lock.get('acquireTime', '')}",
        initialized=bool(config.get("initialize")),
        begun=config.get("initialize") == "",
        switchover=_switchover(names, failover),
        asked=failover.get(ASKED, ""),
        kept=_kept(names, lock),
        settings=json_in(config.get("config")),
        store_versions={
            config_map.key.name: config_map.metadata.resource_version
            for config_map in store
            if config_map.metadata.resource_version
        },
    )


class _Cluster:
    """What a member is compared with: the primary's position and timeline, the branches, who is synchronous."""

    def __init__(
        self, position: int | None, timeline: int | None, history: Sequence[Sequence[Any]], standbys: frozenset[str]
    ) -> None:
        self.position = position
        self.timeline = timeline
        self.standbys = standbys
        # Each entry ends a timeline: its number, the position of the branch, and what else is known.
        self.branches = {
            number: position
            for entry in history
            if len(entry) > 1
            and (number := whole(entry[0])) is not None
            and (position := whole(entry[1])) is not None
        }

    def diverged(self, timeline: int | None, position: int | None) -> bool:
        """Whether somebody is beyond the point where his timeline ended, or on one that nobody went on from."""
        if timeline is None or position is None or self.timeline is None or timeline >= self.timeline:
            return False
        if timeline not in self.branches:
            # What was written down may be less than what is so.
            return any(later > timeline for later in self.branches)
        return position > self.branches[timeline]

    def behind(self, timeline: int | None, position: int | None) -> bool:
        """Whether somebody has nothing that the primary has not, and less."""
        if timeline is None or position is None or self.timeline is None or self.position is None:
            return False
        if timeline == self.timeline:
            return position < self.position
        return position <= self.branches.get(timeline, -1)


def _member(pod: Pod, number: int, status: Mapping[str, Any], cluster: _Cluster) -> Member:
    position, timeline = whole(status.get("xlog_location")), whole(status.get("timeline"))
    is_primary = status.get("role") in _PRIMARIES
    state = _state(pod, status)
    serves = state in ("Running", "Streaming")
    lag = None
    if serves and not is_primary and position is not None and cluster.position is not None:
        lag = max(cluster.position - position, 0)
    return Member(
        pod=pod.key,
        instance=number,
        role="Primary" if is_primary else "Replica",
        state=state,
        timeline=timeline,
        lag_bytes=lag,
        synchronous=pod.key.name in cluster.standbys,
        pending_restart=bool(status.get("pending_restart")),
        pending=_pending(status.get("pending_restart_reason")),
        version=str(mapping(status.get("tags")).get("version", "")),
        diverged=not is_primary and state != "Streaming" and cluster.diverged(timeline, position),
        behind=position if serves and not is_primary and cluster.behind(timeline, position) else None,
        storage=_storage(pod),
    )


def _state(pod: Pod, status: Mapping[str, Any]) -> MemberState:
    """What the member last said, unless nobody is there any more who could have said it."""
    said = str(status.get("state", ""))
    if not said:
        return "Unknown"
    if any(container.state.running is None for container in pod.status.container_statuses):
        return "Stopped"
    if said.endswith("failed") or "failed (" in said:
        return "StartFailed"
    state = _STATES.get(said, "Unknown")
    streams = state == "Running" and status.get("replication_state") == "streaming"
    return "Streaming" if streams and status.get("role") not in _PRIMARIES else state


def _status(pod: Pod) -> Mapping[str, Any]:
    return mapping(json_in(pod.metadata.annotations.get("status"), {}))


def _storage(pod: Pod) -> Mapping[str, int]:
    told = mapping(json_in(pod.metadata.annotations.get(_STORAGE), {}))
    return {name: level for name in ("data", "wal") if (level := whole(told.get(name))) is not None}


def _position(primary: Mapping[str, Any], lock: Mapping[str, str]) -> int | None:
    """Where the primary is: both are written every loop, so the later of the two."""
    known = [one for one in (whole(primary.get("xlog_location")), whole(lock.get("optime"))) if one is not None]
    return max(known, default=None)


def _pending(reason: Any) -> tuple[PendingSetting, ...]:
    return tuple(
        PendingSetting(
            name=name,
            former=str(mapping(values).get("old_value", "")),
            value=str(mapping(values).get("new_value", "")),
        )
        for name, values in sorted(mapping(reason).items())
    )


def _switchover(names: ClusterNames, failover: Mapping[str, str]) -> SwitchoverRequest | None:
    if not (failover.get("leader") or failover.get("member")):
        return None
    return SwitchoverRequest(to=number_of(names, failover.get("member") or ""))


def _kept(names: ClusterNames, lock: Mapping[str, str]) -> frozenset[int]:
    """Whose slots are kept. A slot is called as its member, with underscores."""
    slots = json_in(lock.get("retain_slots"), [])
    named = cast(Sequence[Any], slots) if isinstance(slots, list) else ()
    prefix = names.instance(0).removesuffix("0").replace("-", "_")
    found = (re.fullmatch(rf"{prefix}(\d+)_0", str(slot)) for slot in named)
    return frozenset(int(match[1]) for match in found if match)


def _former(sync: Mapping[str, str], history: Sequence[Sequence[Any]]) -> str:
    """Who led when the lock was given back: the synchronous state names him, else the last promotion does."""
    last = history[-1] if history else ()
    return sync.get("leader") or (str(last[4]) if len(last) > 4 else "")


def _names(members: Members) -> ClusterNames:
    return ClusterNames(members.cluster)
