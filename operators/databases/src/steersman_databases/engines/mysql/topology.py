"""The members of a group as their agents tell them, and what they can be asked.

All that is known stands in Kubernetes: an annotation of each pod, and those of one ConfigMap. Whose each is and what
it says is written in images/mysql/steersman_agent/store.py. Only to end is asked of a server itself: its agent starts
it again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.cache import CachedClient
from steersman.errors import NotFound
from steersman.meta import ObjectKey

from ..cluster_names import OPERATOR, ClusterNames
from ..errors import ServerUnreachable
from ..notes import annotate, endpoint_of, json_in, mapping, number_of, whole
from ..server import ClientCertificate, Login, Server, TLSMode, Verification
from ..topology import Member, Members, MemberState, PendingSetting, Restored, SwitchoverRequest
from ..versions import ordered
from . import shutdown
from .pod import PORT

_PREFIX = "databases.steersman.dev"
MEMBER = f"{_PREFIX}/member"
GROUP = f"{_PREFIX}/group"
GROUP_NAME = f"{_PREFIX}/group-name"
INSTANCES = f"{_PREFIX}/instances"
PARAMETERS = f"{_PREFIX}/parameters"
TRIALS = f"{_PREFIX}/trials"
"""The operator's alone: which values failed or are tried; see clusters/parameters.py."""
SWITCHOVER = f"{_PREFIX}/switchover-to"
ASKED = f"{_PREFIX}/asked-on"
"""On which version of the ConfigMap the last switchover was asked for. Members leave it there."""
CONSENT = f"{_PREFIX}/consent"

_STATES: Mapping[str, MemberState] = {
    "Empty": "Starting",
    "Stopped": "Stopped",
    "Starting": "Starting",
    "Cloning": "Cloning",
    "Offline": "Offline",
    "Joining": "Starting",
    "Recovering": "Running",
    "Failed": "Offline",
}


class GroupTopology:
    """A `Topology` of clusters that are groups of MySQL's."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client

    def observe(self, cluster: ObjectKey, pods: Sequence[Pod], store: Sequence[ConfigMap]) -> Members:
        """See `Topology.observe`."""
        return observe(cluster, pods, store)

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """See `Topology.configure`. The group gets its first name with the first settings."""
        if members.settings == settings:
            return False
        group = await self._client.live.get(ConfigMap, ClusterNames(members.cluster).group)
        notes: dict[str, str | None] = {**_annotations(settings)}
        if GROUP_NAME not in group.metadata.annotations:
            notes[GROUP_NAME] = str(uuid.uuid5(uuid.NAMESPACE_OID, group.metadata.uid))
        await self._annotate(members, notes)
        return True

    async def switch_over(self, members: Members, to: int | None) -> None:
        """See `Topology.switch_over`."""
        version = members.store_versions.get(ClusterNames(members.cluster).group.name)
        await self._annotate(members, {SWITCHOVER: "any" if to is None else str(to), ASKED: version})

    async def forget_data(self, members: Members) -> None:
        """See `Topology.forget_data`: for upgrades of the data, which MySQL does by itself as it starts."""

    async def restart_server(self, members: Members, member: Member) -> None:
        """See `Topology.restart_server`."""
        endpoint = await endpoint_of(self._client, member, PORT)
        try:
            own = await self._client.live.get(Secret, ClusterNames(members.cluster).operator_certificate)
        except NotFound as error:
            raise ServerUnreachable(endpoint, f"the cluster's certificates are not there: {error}") from error
        certificate = ClientCertificate(own.data.get("tls.crt", b""), own.data.get("tls.key", b""))
        # Members are asked by their address: so it is the authority that tells them, not a name.
        trust = Verification(TLSMode.VERIFY_CA, own.data.get("ca.crt", b""))
        await shutdown.shut_down(Server("mysql", endpoint, Login(OPERATOR, certificate=certificate), trust))

    async def reload(self, members: Members, member: Member) -> None:
        """See `Topology.reload`: agents see by themselves that files have changed."""

    async def _annotate(self, members: Members, annotations: Mapping[str, str | None]) -> None:
        await annotate(self._client, members, ClusterNames(members.cluster).group, annotations)


def _annotations(settings: Mapping[str, Any]) -> Mapping[str, str | None]:
    recovered, trials = settings.get("recovered"), settings.get("steersman")
    return {
        PARAMETERS: json.dumps(settings["mysql"]["parameters"], sort_keys=True),
        INSTANCES: ",".join(map(str, settings["instances"])),
        CONSENT: None if recovered is None else str(recovered),
        TRIALS: None if trials is None else json.dumps(trials, sort_keys=True),
    }


def _settings(told: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What `_annotations` wrote."""
    if PARAMETERS not in told:
        return None
    trials = mapping(json_in(told.get(TRIALS)))
    return {
        "mysql": {"parameters": mapping(json_in(told[PARAMETERS]))},
        "instances": [n for n in map(whole, told.get(INSTANCES, "").split(",")) if n is not None],
        "recovered": whole(told.get(CONSENT)),
        **({"steersman": trials} if trials else {}),
    }


def observe(cluster: ObjectKey, pods: Sequence[Pod], store: Sequence[ConfigMap]) -> Members:
    """What pods and the ConfigMap of a group tell of its members."""
    names = ClusterNames(cluster)
    nothing: Mapping[str, str] = {}
    told = next((c.metadata.annotations for c in store if c.key == names.group), nothing)
    group = mapping(json_in(told.get(GROUP)))
    epoch, leader = whole(group.get("epoch")) or 0, whole(group.get("leader"))
    found = [m for pod in pods if (m := _member(names, pod)) is not None]
    asked = told.get(SWITCHOVER)
    return Members(
        cluster=cluster,
        members=_compared(sorted(found, key=lambda member: member.instance)),
        leader=leader,
        leadership=f"{epoch} {'' if leader is None else leader} {group.get('uuid', '')}",
        initialized=epoch > 0,
        epoch=epoch,
        switchover=None if asked is None else SwitchoverRequest(to=whole(asked)),
        asked=told.get(ASKED, ""),
        settings=_settings(told),
        store_versions={c.key.name: v for c in store if (v := c.metadata.resource_version)},
    )


def _compared(members: Sequence[Member]) -> Sequence[Member]:
    """The same, with who is newer than others. Group Replication appoints none but of the lowest version.

    Source: MySQL 9.7 Reference Manual, "Member Versions During Upgrades".
    """
    versions = {m.instance: ordered(m.version) for m in members if m.in_group and m.version}
    lowest = min(versions.values(), default=())
    return [replace(m, newer=versions.get(m.instance, lowest) > lowest) for m in members]


def _member(names: ClusterNames, pod: Pod) -> Member | None:
    if (number := number_of(names, pod.key.name)) is None:
        return None
    said = mapping(json_in(pod.metadata.annotations.get(MEMBER)))
    pending = mapping(said.get("pending"))
    online, state = said.get("state") == "Online", _state(pod, said)
    errant = str(said.get("errant") or "")
    return Member(
        pod=pod.key,
        instance=number,
        role="Primary" if said.get("primary") is True else "Replica",
        state=state,
        diverged=said.get("diverged") is True,
        pending_restart=bool(pending),
        pending=[_pending(name, values) for name, values in sorted(pending.items())],
        version=str(said.get("version", "")),
        storage={k: n for k, v in mapping(said.get("storage")).items() if (n := whole(v)) is not None},
        queued=whole(said.get("queued")) if online else None,
        errant=errant,
        apart=said.get("apart") is True or bool(errant),
        refused={str(k): str(v) for k, v in mapping(said.get("refused")).items()},
        restored=_restored(mapping(said.get("restored"))),
        lacks=str(said.get("lacks") or ""),
        unseen=_numbers(said.get("unseen")),
        because=str((said.get("unstarted") if state == "StartFailed" else "") or said.get("because") or ""),
        failing=str(said.get("failing") or ""),
    )


def _state(pod: Pod, said: Mapping[str, Any]) -> MemberState:
    """What the member last said, unless nobody is there any more who could have said it."""
    told = str(said.get("state", ""))
    if not told:
        return "Unknown"
    if any(container.state.running is None for container in pod.status.container_statuses):
        return "Stopped"
    if told == "Online":
        if said.get("majority") is False:
            return "Isolated"
        return "Running" if said.get("primary") is True else "Streaming"
    if told in ("Stopped", "Starting") and said.get("unstarted"):
        return "StartFailed"
    return _STATES.get(told, "Unknown")


def _pending(name: str, values: Any) -> PendingSetting:
    former, value, *_ = [*map(str, _list(values)), "", ""]
    return PendingSetting(name=name, former=former, value=value)


def _restored(said: Mapping[str, Any]) -> Restored | None:
    with suppress(ValueError):
        when = datetime.fromisoformat(str(said.get("time")))
        if when.tzinfo is not None:
            return Restored(time=when, parameters=sorted({*map(str, _list(said.get("parameters")))}))
    return None


def _list(value: Any) -> Sequence[Any]:
    return cast(Sequence[Any], value) if isinstance(value, list) else ()


def _numbers(value: Any) -> frozenset[int] | None:
    """None where it is no list of numbers."""
    numbers = frozenset(map(whole, _list(value)))
    return frozenset(n for n in numbers if n is not None) if isinstance(value, list) and None not in numbers else None
