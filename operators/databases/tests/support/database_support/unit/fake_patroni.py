"""Patroni's part in a cluster in memory: who leads, who follows, and what is written to pods and ConfigMaps.

It keeps Patroni's promises and no more of it: one leader at a time, only members that have the data, with synchronous
replication only those that have all; whoever finds no data copies the leader's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from database_support.fake_server.engine import InMemoryServer
from database_support.simulation.pod_resizes import PodResizes, conditions_with_ready
from database_support.unit.fake_programs import FakePrograms
from database_support.unit.pulled_images import PulledImages
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import Client, MergePatch
from steersman.errors import Conflict, NotFound
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.cluster.state import FENCED_INSTANCE
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.members import Member, Members
from steersman_databases.engines.naming import CLUSTER_LABEL, ROLE_LABEL, VERSION_LABEL, ClusterNames
from steersman_databases.engines.postgresql.config.hba import OPERATOR_ROLE
from steersman_databases.engines.postgresql.ha.backend import PatroniBackend
from steersman_databases.features.services.endpoint_slices import LEADER_TERM_ANNOTATION, endpoints_of, points_to
from steersman_pod.rw_endpoints import ClusterIdentity
from steersman_testing import InMemoryApiServer

DIVERGED_POSITION, PRIMARY_POSITION = 16 << 20, 32 << 20
RESTART_BOUND = ("max_connections", "shared_buffers")


@dataclass
class FakeVolume:
    """What is on a claim: whose data, and how far they are."""

    system: str = ""
    timeline: int = 0
    broken: bool = False
    major: str = ""
    restored: bool = False
    """True for data that a restore in place brought back, and copies of them."""


@dataclass
class FakeHosts:
    """What outlives pods: volumes by the claim's UID, and what the servers in pods (by UID) run with."""

    volumes: dict[str, FakeVolume] = field(default_factory=dict[str, FakeVolume])
    running: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    restarts: list[str] = field(default_factory=list[str])
    restarting: bool = False
    """Whether servers that restart have not started yet."""
    systems: int = 0
    addresses: int = 0
    """How many were given to pods."""
    history: list[str] = field(default_factory=list[str])
    serving: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    """Clusters that served in each round, and whether their data are restored."""
    unschedulable: set[str] = field(default_factory=set[str])
    crashing: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Of images that do not run, what a kubelet says of their containers."""
    pod_rejection: str = ""
    """In what words the API server refuses pods; it takes them where this is empty."""
    registry_prefix: str = ""
    """Prefix that admission adds to images of pods."""
    failing_start: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Parameters and values with which no server starts."""
    unreadable_values: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Parameters and values that servers do not read: who runs goes on without, and nobody starts with them."""
    broken_line: str = ""
    """What a server says of a line of its file that it does not understand, wherever it came from."""
    server_error: str = (
        "FATAL:  could not map anonymous shared memory HINT:  reduce shared_buffers or max_connections"
    )
    """What the first server of a cluster says of them."""
    rejects_switchover: set[str] = field(default_factory=set[str])
    """Pods that no primary hands over to."""
    switchover_requests: list[str] = field(default_factory=list[str])
    """Pods that were asked to take over, in this order."""
    interrupt_promotion: bool = False
    """Whether the next server that is to make the data ends before it does."""
    slow: bool = False
    """Whether primaries leave their EndpointSlices as they are."""
    is_silent: bool = False
    """Whether members have not come round to say what has become of them."""
    sql: InMemoryServer = field(
        default_factory=lambda: InMemoryServer(administrator=SqlCredentials(OPERATOR_ROLE, ""))
    )
    """What is inside the primary."""
    applied: list[str] = field(default_factory=list[str])
    """The SQL of initial configurations that came through."""
    upgrade_fails: str = ""
    """What the Job of an upgrade ends with; it succeeds where this is empty."""
    programs: FakePrograms = field(default_factory=FakePrograms)
    """Recoveries and final backups."""
    not_rolled_out: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a Deployment's status says of pods that do not become ready; where this is empty, all are."""
    upgrade_hangs: bool = False
    """Whether the pod of that Job runs on, and does not even end when it is deleted."""
    hanging: set[str] = field(default_factory=set[str])
    """Pods that do not end when they are deleted, by name."""
    stuck_jobs: dict[str, dict[str, Any] | str] = field(default_factory=dict[str, dict[str, Any] | str])
    """Of Jobs by name, the status of a pod that does not start (where empty, none is made yet), or why none is."""
    missing_programs: str = ""
    """What the Job ends with that looks whether the image of the upgrade has everything."""
    altered: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """What ALTER SYSTEM wrote, by the pod: the file, which its server has read as far as it is in ``loaded``."""
    loaded: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    lagging: set[str] = field(default_factory=set[str])
    """Pods whose servers do not follow: their log ends at `STRAYED`, that of the others at `WRITTEN`."""
    stuck: set[str] = field(default_factory=set[str])
    """Pods whose servers stream and receive nothing."""
    unreadable: list[str] = field(default_factory=list[str])
    """Servers that were started on data of another version."""
    images: PulledImages = field(default_factory=PulledImages)
    resizes: PodResizes = field(default_factory=PodResizes)

    def cannot_start_with(self, parameters: Mapping[str, str]) -> bool:
        """Whether nobody starts with these parameters."""
        return bool(self.broken_line or self.unreadable_values & set(parameters.items()))

    def alter(self, pod: str, **values: str) -> None:
        """Somebody sets parameters by ALTER SYSTEM, and has the server read its files."""
        self.altered.setdefault(pod, {}).update(values)
        self.loaded[pod] = dict(self.altered[pod])


class FakePatroniBackend(PatroniBackend):
    """What is asked of members over their REST API is told to the hosts; the rest goes through Kubernetes anyway."""

    def __init__(self, client: Any, hosts: FakeHosts) -> None:
        super().__init__(client)
        self._hosts = hosts

    async def restart_server(self, members: Members, member: Member) -> None:
        self._hosts.restarts.append(member.pod.name)

    async def reload(self, members: Members, member: Member) -> None:
        self._hosts.loaded[member.pod.name] = dict(self._hosts.altered.get(member.pod.name, {}))


class FakePatroni:
    """All members of all clusters, played in one."""

    def __init__(self, server: InMemoryApiServer, client: Client, hosts: FakeHosts) -> None:
        self._server = server
        self._client = client
        self._hosts = hosts

    def state(self) -> object:
        """Beside what stands in Kubernetes, who follows no more, and whether servers start."""
        return frozenset(self._hosts.lagging), self._hosts.restarting

    def restore(self, pvc_uid: str) -> None:
        """Implements ``PodProcesses``."""
        source = next(volume for volume in self._hosts.volumes.values() if volume.system)
        self._hosts.volumes[pvc_uid] = FakeVolume(source.system, 7, major="17", restored=True)

    def is_stopped(self, pod: Pod) -> bool:
        """At once, where it does not hang."""
        return pod.metadata.name not in self._hosts.hanging

    async def sync(self) -> None:
        """One round of every cluster's members."""
        clusters: dict[ObjectKey, list[Pod]] = {}
        for pod in self._server.read_all(Pod):
            name = pod.metadata.labels.get(CLUSTER_LABEL)
            # As its label selector does: read replicas have another value of the second label.
            if name and pod.metadata.labels.get("app.kubernetes.io/instance") == name and pod.status.pod_ip:
                clusters.setdefault(ObjectKey(pod.metadata.namespace, name), []).append(pod)
        for key, pods in clusters.items():
            try:
                await self._round(ClusterNames(key), sorted(pods, key=lambda p: p.metadata.name))
            except (Conflict, NotFound):
                continue
        for names in self._leaderless(clusters):
            await self._release(names)

    def _leaderless(self, clusters: Mapping[ObjectKey, object]) -> list[ClusterNames]:
        """Clusters whose members are all gone: the last one released the lock as it stopped."""
        found: list[ClusterNames] = []
        for config in self._server.read_all(ConfigMap):
            if config.metadata.name.endswith("-leader") and config.metadata.annotations.get("leader"):
                names = ClusterNames(ObjectKey(config.key.namespace, config.key.name.removesuffix("-leader")))
                if names.key not in clusters:
                    found.append(names)
        return found

    async def _release(self, names: ClusterNames) -> None:
        await self._annotate(names.dcs_leader, {"leader": None})

    async def _round(self, names: ClusterNames, pods: Sequence[Pod]) -> None:
        if self._server.read(ConfigMap, names.dcs_config) is None:
            return
        config, held = self._annotations(names.dcs_config), self._annotations(names.dcs_leader)
        if "config" not in config:
            # The real one ends: it is told how to make the data by nobody else.
            return
        if "initialize" not in config:
            await self._bootstrap(names, pods[0], json.loads(config["config"]))
            return
        if not config["initialize"]:
            # Whoever said so is there no more, or has not heard that it was written: nobody cancels it.
            for pod in pods:
                await self._publish(pod, "uninitialized", "stopped", 0, json.loads(config["config"]))
            return
        usable = [p for p in pods if self._volume(p).system == config["initialize"] and not self._volume(p).broken]
        leader = next((p for p in usable if p.metadata.name == held.get("leader")), None)
        asked = self._annotations(names.dcs_failover).get("member")
        if asked is not None:
            self._hosts.switchover_requests.append(asked)
            heir = next((p for p in usable if p.metadata.name == asked), None)
            await self._annotate(names.dcs_failover, {"member": None, "leader": None})
            if (
                heir is not None
                and leader is not None
                and heir is not leader
                and asked not in self._hosts.rejects_switchover
            ):
                leader = await self._promote(names, heir)
        if leader is None:
            leader = await self._elect(names, usable, json.loads(config["config"]))
        if leader is not None:
            await self._follow(names, leader, pods, config)

    async def _bootstrap(self, names: ClusterNames, pod: Pod, settings: Mapping[str, Any]) -> None:
        if self._hosts.failing_start & set(settings.get("postgresql", {}).get("parameters", {}).items()):
            # The data are put aside, and the container has ended and begun anew.
            ended = {"exitCode": 0, "reason": "Completed", "message": self._hosts.server_error}
            status: dict[str, Any] = {"name": "server", "image": "", "state": {"running": {}}}
            body = {"status": {"containerStatuses": [{**status, "lastState": {"terminated": ended}}]}}
            await self._client.patch(Pod, pod.key, MergePatch(body), subresource="status")
            return
        volume = self._volume(pod)
        if not volume.system:
            await self._annotate(names.dcs_config, {"initialize": ""})
            if self._hosts.interrupt_promotion:
                self._hosts.interrupt_promotion = False
                return
            self._hosts.systems += 1
            volume = FakeVolume(f"system-{self._hosts.systems}", 1, major=_major(pod))
            self._hosts.volumes[self._claim_uid(pod)] = volume
        system = volume.system
        await self._annotate(names.dcs_config, {"initialize": system})
        self._hosts.history.append(pod.metadata.name)
        lock = {"leader": pod.metadata.name, "transitions": str(len(self._hosts.history))}
        await self._annotate(names.dcs_leader, lock)

    async def _elect(self, names: ClusterNames, usable: Sequence[Pod], settings: Mapping[str, Any]) -> Pod | None:
        sync = self._annotations(names.dcs_sync)
        position = self._annotations(names.dcs_leader).get("optime")
        # Restored data end before the recorded position.
        usable = [p for p in usable if position is None or not self._volume(p).restored]
        allowed = {*sync.get("sync_standby", "").split(","), sync.get("leader")}
        if settings.get("synchronous_mode") and sync.get("leader"):
            usable = [p for p in usable if p.metadata.name in allowed]
        return await self._promote(names, usable[0]) if usable else None

    async def _promote(self, names: ClusterNames, pod: Pod) -> Pod:
        volume = self._volume(pod)
        volume.timeline += 1
        history = json.loads(self._annotations(names.dcs_config).get("history", "[]"))
        history.append([volume.timeline - 1, 1, "no recovery target specified", "", pod.metadata.name])
        await self._annotate(names.dcs_config, {"history": json.dumps(history)})
        self._hosts.history.append(pod.metadata.name)
        lock = {"leader": pod.metadata.name, "transitions": str(len(self._hosts.history))}
        await self._annotate(names.dcs_leader, lock)
        return pod

    async def _follow(self, names: ClusterNames, leader: Pod, pods: Sequence[Pod], config: Mapping[str, str]) -> None:
        data = self._volume(leader)
        settings = json.loads(config["config"])
        streaming: list[str] = []
        for pod in pods:
            volume = self._volume(pod)
            if volume.broken:
                await self._publish(pod, "replica", "start failed", volume.timeline, settings)
                continue
            if volume.major not in ("", _major(pod)):
                self._hosts.unreadable.append(f"{pod.metadata.name} of {_major(pod)} on data of {volume.major}")
                continue
            self._hosts.volumes[self._claim_uid(pod)] = replace(data)
            if pod is leader:
                await self._publish(pod, "primary", "running", data.timeline, settings)
            else:
                if pod.metadata.name not in self._hosts.lagging:
                    streaming.append(pod.metadata.name)
                await self._publish(pod, "replica", "running", data.timeline, settings)
        self._hosts.serving.append((names.key.name, data.restored))
        chosen = streaming if settings.get("synchronous_mode") else []
        note = {"leader": leader.metadata.name, "sync_standby": ",".join(chosen)}
        await self._annotate(names.dcs_sync, note if chosen else {"leader": None, "sync_standby": None})
        if not self._hosts.slow:
            await self._take_slices(names, leader)

    async def _take_slices(self, names: ClusterNames, leader: Pod) -> None:
        held = self._annotations(names.dcs_leader)
        leadership = f"{held.get('transitions', '0')} {held.get('acquireTime', '')}"
        owner = ClusterIdentity("PostgreSQLCluster", "postgresql", names.key.name)
        for key in names.endpoint_slices(names.service("rw").name):
            found = self._server.read(EndpointSlice, key)
            if found is None or not owner.owns(to_builtins(found.metadata)):
                continue
            endpoints = endpoints_of(leader, found.address_type)
            if not points_to(found, endpoints):
                body = {"metadata": {"annotations": {LEADER_TERM_ANNOTATION: leadership}}, "endpoints": endpoints}
                await self._client.patch(EndpointSlice, key, MergePatch(body))

    async def _publish(self, pod: Pod, role: str, state: str, timeline: int, settings: Mapping[str, Any]) -> None:
        parameters = settings.get("postgresql", {}).get("parameters", {}) | self._hosts.loaded.get(
            pod.metadata.name, {}
        )
        wanted = {k: v for k, v in parameters.items() if k in RESTART_BOUND}
        if pod.metadata.name in self._hosts.restarts:
            if self._hosts.restarting:
                state = "restarting"
            else:
                self._hosts.restarts.remove(pod.metadata.name)
                self._hosts.running.pop(pod.metadata.uid, None)
        if pod.metadata.uid not in self._hosts.running and self._hosts.cannot_start_with(parameters):
            runs, state = wanted, "start failed"
        else:
            runs = self._hosts.running.setdefault(pod.metadata.uid, wanted)
        if self._hosts.failing_start & set(runs.items()):
            # The real one tries again and again, each time with what is written then.
            runs = wanted
            if self._hosts.failing_start & set(runs.items()) or self._hosts.cannot_start_with(parameters):
                del self._hosts.running[pod.metadata.uid]
                state = "start failed"
            else:
                self._hosts.running[pod.metadata.uid] = wanted
        differ = sorted(k for k in {*runs, *wanted} if runs.get(k) != wanted.get(k))
        reason = {k: {"old_value": runs.get(k, ""), "new_value": wanted.get(k, "")} for k in differ}
        said: dict[str, Any] = {
            "role": role,
            "state": state,
            "timeline": timeline,
            "tags": {
                "version": self._hosts.images.version(pod, f"{_major(pod)}.6"),
                **self._hosts.images.reported_contract(pod),
            },
        }
        if reason:
            said |= {"pending_restart": True, "pending_restart_reason": reason}
        strays = pod.metadata.name in self._hosts.lagging
        if role == "replica":
            said["replication_state"] = "in archive recovery" if strays else "streaming"
        if self._hosts.lagging or self._hosts.stuck:
            behind = strays or pod.metadata.name in self._hosts.stuck
            said["xlog_location"] = DIVERGED_POSITION if behind else PRIMARY_POSITION
        note = json.dumps(said, sort_keys=True)
        ready = state == "running" and not strays
        labelled = pod.metadata.labels.get(ROLE_LABEL) == role
        if self._hosts.is_silent:
            return
        if pod.metadata.annotations.get("status") != note or not labelled:
            body = {"metadata": {"annotations": {"status": note}, "labels": {ROLE_LABEL: role}}}
            await self._client.patch(Pod, pod.key, MergePatch(body))
        if [c.status for c in pod.status.conditions if c.type == "Ready"] != ["True" if ready else "False"]:
            body = {"status": {"phase": "Running", "conditions": conditions_with_ready(pod, ready=ready)}}
            await self._client.patch(Pod, pod.key, MergePatch(body), subresource="status")

    def _claim_uid(self, pod: Pod) -> str:
        return pod.metadata.annotations["volume"]

    def _volume(self, pod: Pod) -> FakeVolume:
        return self._hosts.volumes.setdefault(self._claim_uid(pod), FakeVolume())

    def _annotations(self, key: ObjectKey) -> Mapping[str, str]:
        found = self._server.read(ConfigMap, key)
        return {} if found is None else found.metadata.annotations

    async def _annotate(self, key: ObjectKey, notes: Mapping[str, str | None]) -> None:
        present = self._annotations(key)
        if any(present.get(k) != v for k, v in notes.items()):
            await self._client.patch(ConfigMap, key, MergePatch({"metadata": {"annotations": dict(notes)}}))


def _major(pod: Pod) -> str:
    return pod.metadata.labels[VERSION_LABEL]


def is_fenced(pod: Pod) -> bool:
    """Whether no server runs in it."""
    return pod.metadata.annotations.get(FENCED_INSTANCE) == "true"
