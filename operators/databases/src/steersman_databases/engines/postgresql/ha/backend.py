"""Members of a cluster as Patroni reports them, and requests.

All state is in Kubernetes: in the annotation `status` of each pod and in Patroni's ConfigMaps. Only restarts and
reloads go to the member itself, because Patroni accepts them over its REST API only.

Source: patroni/dcs/kubernetes.py and patroni/ha.py of 4.1.5 (annotations), its documentation "Patroni REST API".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_databases.engines.annotation_io import (
    annotate,
    as_mapping,
    endpoint_of,
    ordinal_of_pod,
    parse_int,
    parse_json,
    parse_times,
)
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.members import (
    MAX_CRASHES,
    Member,
    Members,
    MemberState,
    PendingSetting,
    SwitchoverRequest,
)
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.server_pod import server_statuses

from . import patroni, rest_client

DEFERRED_SETTINGS = frozenset({"archive_mode", "reserved_connections"})
"""Parameters of the operator for which no restart is forced.

They take effect at the next restart.
"""
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
_STORAGE = "databases.steersman.dev/volume-usage"
"""Annotation of pods with the fill level of their volumes.

images/postgresql/watch.py writes it.
"""
_LINEAGE = "databases.steersman.dev/lineage"
"""Annotation of the `-config` ConfigMap: lineage that Patroni's state describes."""
_WRITE_ERROR = "databases.steersman.dev/write-error"
"""Annotation of pods with the reason why the primary accepts no writes.

images/postgresql/watch.py writes it.
"""
_CRASHES = "databases.steersman.dev/crashes"
"""Annotation of pods with the times at which their servers crashed.

images/postgresql/watch.py writes it.
"""
SWITCHOVER_VERSION_ANNOTATION = "databases.steersman.dev/requested-version"
"""Annotation of the `-failover` ConfigMap: its version at the last request.

Patroni does not remove it.
"""


class PatroniBackend:
    """The `HaBackend` of clusters that Patroni runs."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client

    def members_of(self, cluster: ObjectKey, pods: Sequence[Pod], dcs_objects: Sequence[ConfigMap]) -> Members:
        """See `HaBackend.members_of`."""
        return members_of(cluster, pods, dcs_objects)

    def recreated_state(self, cluster: ObjectKey, identity: str) -> tuple[ObjectKey, Mapping[str, str]]:
        """See `HaBackend.recreated_state`. Patroni stops if its data have another system identifier."""
        return ClusterNames(cluster).dcs_config, {"initialize": identity}

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """See `HaBackend.configure`."""
        if members.settings == settings:
            return False
        config = {"config": json.dumps(settings)}
        await annotate(self._client, members, _names(members).dcs_config, config)
        return True

    async def request_switchover(self, members: Members, to: int | None) -> None:
        """See `HaBackend.request_switchover`."""
        names = _names(members)
        leader = None if members.leader is None else names.pod(members.leader).name
        candidate = None if to is None else names.pod(to).name
        version = members.dcs_versions.get(names.dcs_failover.name)
        requested_on = {"leader": leader, "member": candidate, SWITCHOVER_VERSION_ANNOTATION: version}
        await annotate(self._client, members, names.dcs_failover, requested_on)

    async def clear_initialize(self, members: Members) -> None:
        """See `HaBackend.clear_initialize`.

        Patroni stops if the system identifier of its data differs from the stored one.
        """
        await annotate(self._client, members, _names(members).dcs_config, {"initialize": None})

    async def begin_lineage(self, members: Members, lineage: int) -> None:
        """See `HaBackend.begin_lineage`.

        Patroni promotes no member behind the recorded position or timeline, nor one without a synchronous vote. The
        term of the leader stays: it only rises. The object with the lineage is written last.
        """
        names = _names(members)
        for key, forgotten in (
            (names.dcs_leader, ("leader", "optime", "status", "slots", "retain_slots", "failsafe")),
            (names.dcs_sync, ("leader", "sync_standby", "quorum")),
            (names.dcs_failover, ("leader", "member", "scheduled_at")),
        ):
            await annotate(self._client, members, key, dict.fromkeys(forgotten))
        await annotate(
            self._client,
            members,
            names.dcs_config,
            {"initialize": None, "history": None, _LINEAGE: str(lineage)},
        )

    async def record_lineage(self, members: Members, lineage: int) -> None:
        """See `HaBackend.record_lineage`."""
        await annotate(self._client, members, _names(members).dcs_config, {_LINEAGE: str(lineage)})

    async def reserve_timeline(self, members: Members, newest: int) -> int:
        """See `HaBackend.reserve_timeline`.

        Each promotion reserves its number in the same ConfigMap: images/postgresql/timeline.py.
        """
        key, system = _names(members).dcs_timelines, members.data_identity
        found = await self._client.live.get(ConfigMap, key)
        number = max(newest, parse_int(found.data.get(system)) or 0) + 1
        if system:
            body = {
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "data": {system: str(number)},
            }
            await self._client.live.patch(ConfigMap, key, MergePatch(body))
        return number

    async def restart_server(self, members: Members, member: Member) -> None:
        """See `HaBackend.restart_server`."""
        await self._post(members, member, "/restart", {})

    async def reload(self, members: Members, member: Member) -> None:
        """See `HaBackend.reload`."""
        await self._post(members, member, "/reload", {})

    async def _post(self, members: Members, member: Member, path: str, body: Mapping[str, Any]) -> None:
        names = _names(members)
        endpoint = await endpoint_of(self._client, member, patroni.REST_PORT)
        try:
            client_data = await self._client.live.get(Secret, names.operator_certificate)
            server_data = await self._client.live.get(Secret, names.server_certificate)
        except NotFound as error:
            raise ServerUnreachable(endpoint, f"the certificates of the cluster are missing: {error}") from error
        await rest_client.post(
            endpoint, path, body, rest_client.client_ssl_context(client_data.data, server_data.data)
        )


def members_of(cluster: ObjectKey, pods: Sequence[Pod], dcs_objects: Sequence[ConfigMap]) -> Members:
    """Return the members that the pods and ConfigMaps of a cluster describe."""
    names = ClusterNames(cluster)
    statuses: Mapping[str, Mapping[str, str]] = {one.key.name: one.metadata.annotations for one in dcs_objects}
    nothing: Mapping[str, str] = {}
    patroni_objects = (names.dcs_config, names.dcs_leader, names.dcs_sync, names.dcs_failover)
    config, leader_lock, sync, failover = (statuses.get(key.name, nothing) for key in patroni_objects)
    standbys = frozenset(filter(None, (sync.get("sync_standby") or "").split(",")))
    history = parse_json(config.get("history"), [])
    primary = leader_lock.get("leader") or None
    reported = {pod.key.name: _status(pod) for pod in pods}
    position = _primary_position(reported.get(primary or "", {}), leader_lock)
    timeline = parse_int(reported.get(primary or "", {}).get("timeline"))
    members = [
        _member(pod, ordinal, reported[pod.key.name], _PrimaryPosition(position, timeline, history, standbys))
        for pod in pods
        if (ordinal := ordinal_of_pod(names, pod.key.name)) is not None
    ]
    return Members(
        cluster=cluster,
        members=sorted(members, key=lambda member: member.instance),
        leader=ordinal_of_pod(names, primary or ""),
        previous_leader=None if primary else ordinal_of_pod(names, _previous_leader(sync, history)),
        leader_term=f"{leader_lock.get('transitions', '0')} {leader_lock.get('acquireTime', '')}",
        is_initialized=bool(config.get("initialize")),
        data_identity=config.get("initialize") or "",
        bootstrap_claimed=config.get("initialize") == "",
        lineage=parse_int(config.get(_LINEAGE)) or 0,
        switchover_request=_switchover(names, failover),
        switchover_version=failover.get(SWITCHOVER_VERSION_ANNOTATION, ""),
        slots_kept_for=_slots_kept(names, leader_lock),
        slots=frozenset(as_mapping(parse_json(leader_lock.get("slots"), {}))),
        settings=parse_json(config.get("config")),
        dcs_versions={
            config_map.key.name: config_map.metadata.resource_version
            for config_map in dcs_objects
            if config_map.metadata.resource_version
        },
    )


class _PrimaryPosition:
    """Reference for comparing members: the primary's position, timelines and synchronous standbys."""

    def __init__(
        self, position: int | None, timeline: int | None, history: Sequence[Sequence[Any]], standbys: frozenset[str]
    ) -> None:
        self.position = position
        self.timeline = timeline
        self.standbys = standbys
        # Each entry ends a timeline: its number, the position of the branch, and further data.
        self.branches = {
            ordinal: position
            for entry in history
            if len(entry) > 1
            and (ordinal := parse_int(entry[0])) is not None
            and (position := parse_int(entry[1])) is not None
        }

    def has_diverged(self, timeline: int | None, position: int | None) -> bool:
        """Return True if a member left the primary's history.

        It is past the end of its timeline, or on an abandoned timeline.
        """
        if timeline is None or position is None or self.timeline is None or timeline >= self.timeline:
            return False
        if timeline not in self.branches:
            # The recorded history may be incomplete.
            return any(later > timeline for later in self.branches)
        return position > self.branches[timeline]

    def has_fallen_behind(self, timeline: int | None, position: int | None) -> bool:
        """Return True if a member's WAL is a part of the primary's.

        The primary has all of it and more.
        """
        if timeline is None or position is None or self.timeline is None or self.position is None:
            return False
        if timeline == self.timeline:
            return position < self.position
        return position <= self.branches.get(timeline, -1)


def _member(pod: Pod, ordinal: int, status: Mapping[str, Any], cluster: _PrimaryPosition) -> Member:
    position, timeline = parse_int(status.get("xlog_location")), parse_int(status.get("timeline"))
    is_primary = status.get("role") in _PRIMARIES
    state = _state(pod, status)
    serves, tags = state in ("Running", "Streaming"), as_mapping(status.get("tags"))
    pending = _pending(status.get("pending_restart_reason"))
    lag = None
    if serves and not is_primary and position is not None and cluster.position is not None:
        lag = max(cluster.position - position, 0)
    return Member(
        pod=pod.key,
        instance=ordinal,
        role="Primary" if is_primary else "Replica",
        state=state,
        timeline=timeline,
        lag_bytes=lag,
        synchronous=pod.key.name in cluster.standbys,
        pending_restart=bool(status.get("pending_restart")),
        pending_settings=pending,
        restart_deferred=bool(pending) and all(each.name in DEFERRED_SETTINGS for each in pending),
        version=str(tags.get("version", "")),
        contract=parse_int(tags.get("contract")) or 0 if tags else None,
        timeline_diverged=not is_primary and state != "Streaming" and cluster.has_diverged(timeline, position),
        wal_position=position
        if serves and not is_primary and cluster.has_fallen_behind(timeline, position)
        else None,
        storage=_storage(pod),
        write_error=pod.metadata.annotations.get(_WRITE_ERROR, "") if is_primary else "",
        crashes=parse_times(parse_json(pod.metadata.annotations.get(_CRASHES)), MAX_CRASHES),
    )


def _state(pod: Pod, status: Mapping[str, Any]) -> MemberState:
    """Return the last reported state, but `Stopped` without running containers."""
    reported = str(status.get("state", ""))
    if not reported:
        return "Unknown"
    if any(container.state.running is None for container in server_statuses(pod)):
        return "Stopped"
    if reported.endswith("failed") or "failed (" in reported:
        return "StartFailed"
    state = _STATES.get(reported, "Unknown")
    streams = state == "Running" and status.get("replication_state") == "streaming"
    return "Streaming" if streams and status.get("role") not in _PRIMARIES else state


def _status(pod: Pod) -> Mapping[str, Any]:
    return as_mapping(parse_json(pod.metadata.annotations.get("status"), {}))


def _storage(pod: Pod) -> Mapping[str, int]:
    reported = as_mapping(parse_json(pod.metadata.annotations.get(_STORAGE), {}))
    return {name: level for name in ("data", "wal") if (level := parse_int(reported.get(name))) is not None}


def _primary_position(primary: Mapping[str, Any], lock: Mapping[str, str]) -> int | None:
    """Return the primary's position.

    Patroni writes two in each loop. The later one counts.
    """
    positions = [
        one for one in (parse_int(primary.get("xlog_location")), parse_int(lock.get("optime"))) if one is not None
    ]
    return max(positions, default=None)


def _pending(reason: Any) -> tuple[PendingSetting, ...]:
    return tuple(
        PendingSetting(
            name=name,
            previous=str(as_mapping(values).get("old_value", "")),
            value=str(as_mapping(values).get("new_value", "")),
        )
        for name, values in sorted(as_mapping(reason).items())
    )


def _switchover(names: ClusterNames, failover: Mapping[str, str]) -> SwitchoverRequest | None:
    if not (failover.get("leader") or failover.get("member")):
        return None
    return SwitchoverRequest(to=ordinal_of_pod(names, failover.get("member") or ""))


def _slots_kept(names: ClusterNames, lock: Mapping[str, str]) -> frozenset[int]:
    """Return the instances whose slots are kept.

    A slot has its member's name, with underscores.
    """
    slots = parse_json(lock.get("retain_slots"), [])
    member_slots = cast(Sequence[Any], slots) if isinstance(slots, list) else ()
    prefix = names.instance(0).removesuffix("0").replace("-", "_")
    found = (re.fullmatch(rf"{prefix}(\d+)_0", str(slot)) for slot in member_slots)
    return frozenset(int(match[1]) for match in found if match)


def _previous_leader(sync: Mapping[str, str], history: Sequence[Sequence[Any]]) -> str:
    """Return the leader before the lock was released.

    The synchronous state names it, or else the last promotion.
    """
    last_promotion = history[-1] if history else ()
    return sync.get("leader") or (str(last_promotion[4]) if len(last_promotion) > 4 else "")


def _names(members: Members) -> ClusterNames:
    return ClusterNames(members.cluster)
