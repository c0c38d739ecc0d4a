"""Members of a group as their agents report them, and requests.

The state is in Kubernetes: one annotation of each pod, and the annotations of one ConfigMap. Their format is
documented in images/mysql/steersman_agent/group/group_config.py. The only request to a server is to stop; its
agent starts it again.
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
    RestoredSettings,
    SwitchoverRequest,
)
from steersman_databases.engines.naming import OPERATOR_ROLE, ClusterNames
from steersman_databases.engines.server import ClientKeyPair, DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.server_pod import server_statuses
from steersman_databases.engines.versions import version_tuple

from ..pod import PORT
from . import shutdown

_PREFIX = "databases.steersman.dev"
MEMBER = f"{_PREFIX}/member-status"
GROUP = f"{_PREFIX}/group-state"
GROUP_NAME = f"{_PREFIX}/group-name"
INSTANCES = f"{_PREFIX}/instances"
PARAMETERS = f"{_PREFIX}/parameters"
TRIALS = f"{_PREFIX}/reverted-parameters"
"""Annotation with values that failed or are tried.

Only the operator reads it; see features/parameters.
"""
SWITCHOVER = f"{_PREFIX}/switchover-target"
SWITCHOVER_VERSION_ANNOTATION = f"{_PREFIX}/requested-version"
"""Version of the ConfigMap at the last request of a switchover.

Members do not remove it.
"""
CONSENT = f"{_PREFIX}/force-recovery"
LINEAGE = f"{_PREFIX}/lineage"
"""Annotation of the group's ConfigMap: lineage of the group's data."""

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


class GroupReplicationBackend:
    """The `HaBackend` of clusters that use Group Replication."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client

    def members_of(self, cluster: ObjectKey, pods: Sequence[Pod], dcs_objects: Sequence[ConfigMap]) -> Members:
        """See `HaBackend.members_of`."""
        return members_of(cluster, pods, dcs_objects)

    def recreated_state(self, cluster: ObjectKey, identity: str) -> tuple[ObjectKey, Mapping[str, str]]:
        """See `HaBackend.recreated_state`. The members know the actual epoch and the name of the group."""
        return ClusterNames(cluster).group_config, {GROUP: json.dumps({"epoch": 1})}

    async def configure(self, members: Members, settings: Mapping[str, Any]) -> bool:
        """See `HaBackend.configure`. The first settings include the group's name."""
        if members.settings == settings:
            return False
        group = await self._client.live.get(ConfigMap, ClusterNames(members.cluster).group_config)
        annotations: dict[str, str | None] = {**_annotations(settings)}
        if GROUP_NAME not in group.metadata.annotations:
            annotations[GROUP_NAME] = str(uuid.uuid5(uuid.NAMESPACE_OID, group.metadata.uid))
        await self._annotate(members, annotations)
        return True

    async def request_switchover(self, members: Members, to: int | None) -> None:
        """See `HaBackend.request_switchover`."""
        version = members.dcs_versions.get(ClusterNames(members.cluster).group_config.name)
        await self._annotate(
            members, {SWITCHOVER: "any" if to is None else str(to), SWITCHOVER_VERSION_ANNOTATION: version}
        )

    async def clear_initialize(self, members: Members) -> None:
        """See `HaBackend.clear_initialize`.

        It serves upgrades of the data, which MySQL performs at its start, so there is nothing to do.
        """

    async def begin_lineage(self, members: Members, lineage: int) -> None:
        """See `HaBackend.begin_lineage`. One write lets the members found another group.

        The group has another name, so that it reuses no number of a lost transaction. A member of the previous group
        that still ran would leave it, because the epoch is later. All known instances have the present data, and no
        record says which of them were members: the first one to start waits for the others.
        """
        annotations = {
            GROUP: json.dumps({"epoch": members.epoch + 1}),
            GROUP_NAME: str(uuid.uuid4()),
            SWITCHOVER: None,
            CONSENT: None,
            LINEAGE: str(lineage),
        }
        await self._annotate(members, annotations)

    async def record_lineage(self, members: Members, lineage: int) -> None:
        """See `HaBackend.record_lineage`."""
        await self._annotate(members, {LINEAGE: str(lineage)})

    async def reserve_timeline(self, members: Members, newest: int) -> int:
        """Not called: MySQL has no timelines."""
        raise NotImplementedError

    async def restart_server(self, members: Members, member: Member) -> None:
        """See `HaBackend.restart_server`."""
        endpoint = await endpoint_of(self._client, member, PORT)
        try:
            own = await self._client.live.get(Secret, ClusterNames(members.cluster).operator_certificate)
        except NotFound as error:
            raise ServerUnreachable(endpoint, f"the certificates of the cluster are missing: {error}") from error
        certificate = ClientKeyPair(own.data.get("tls.crt", b""), own.data.get("tls.key", b""))
        # Connections use the address of the pod, so the authority identifies members, and not a name.
        trust = Verification(TLSMode.VERIFY_CA, own.data.get("ca.crt", b""))
        await shutdown.shut_down(
            DatabaseServer("mysql", endpoint, Login(OPERATOR_ROLE, certificate=certificate), trust)
        )

    async def reload(self, members: Members, member: Member) -> None:
        """See `HaBackend.reload`. Agents detect changed files themselves."""

    async def _annotate(self, members: Members, annotations: Mapping[str, str | None]) -> None:
        await annotate(self._client, members, ClusterNames(members.cluster).group_config, annotations)


def _annotations(settings: Mapping[str, Any]) -> Mapping[str, str | None]:
    recovery_approved_for, parameter_trials = settings.get("forceRecovery"), settings.get("steersman")
    return {
        PARAMETERS: json.dumps(settings["mysql"]["parameters"], sort_keys=True),
        INSTANCES: ",".join(map(str, settings["instances"])),
        CONSENT: None if recovery_approved_for is None else str(recovery_approved_for),
        TRIALS: None if parameter_trials is None else json.dumps(parameter_trials, sort_keys=True),
    }


def _settings(annotations: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Parse annotations that `_annotations` created."""
    if PARAMETERS not in annotations:
        return None
    parameter_trials = as_mapping(parse_json(annotations.get(TRIALS)))
    return {
        "mysql": {"parameters": as_mapping(parse_json(annotations[PARAMETERS]))},
        "instances": [n for n in map(parse_int, annotations.get(INSTANCES, "").split(",")) if n is not None],
        "forceRecovery": parse_int(annotations.get(CONSENT)),
        **({"steersman": parameter_trials} if parameter_trials else {}),
    }


def members_of(cluster: ObjectKey, pods: Sequence[Pod], dcs_objects: Sequence[ConfigMap]) -> Members:
    """Return the members that pods and the ConfigMap of a group describe."""
    names = ClusterNames(cluster)
    nothing: Mapping[str, str] = {}
    annotations = next((c.metadata.annotations for c in dcs_objects if c.key == names.group_config), nothing)
    group = as_mapping(parse_json(annotations.get(GROUP)))
    epoch, leader = parse_int(group.get("epoch")) or 0, parse_int(group.get("leader"))
    found = [m for pod in pods if (m := _member(names, pod)) is not None]
    switchover_version = annotations.get(SWITCHOVER)
    return Members(
        cluster=cluster,
        members=_with_newer_version(sorted(found, key=lambda member: member.instance)),
        leader=leader,
        leader_term=f"{epoch} {'' if leader is None else leader} {group.get('uuid', '')}",
        is_initialized=epoch > 0,
        data_identity=annotations.get(GROUP_NAME, "") if epoch > 0 else "",
        lineage=parse_int(annotations.get(LINEAGE)) or 0,
        epoch=epoch,
        switchover_request=None
        if switchover_version is None
        else SwitchoverRequest(to=parse_int(switchover_version)),
        switchover_version=annotations.get(SWITCHOVER_VERSION_ANNOTATION, ""),
        settings=_settings(annotations),
        dcs_versions={c.key.name: v for c in dcs_objects if (v := c.metadata.resource_version)},
    )


def _with_newer_version(members: Sequence[Member]) -> Sequence[Member]:
    """Mark members with a newer version than others.

    Group Replication elects only members of the lowest version as primary.

    Source: MySQL 9.7 Reference Manual, "Member Versions During Upgrades".
    """
    versions = {m.instance: version_tuple(m.version) for m in members if m.in_group and m.version}
    lowest = min(versions.values(), default=())
    return [replace(m, newer_version=versions.get(m.instance, lowest) > lowest) for m in members]


def _member(names: ClusterNames, pod: Pod) -> Member | None:
    if (ordinal := ordinal_of_pod(names, pod.key.name)) is None:
        return None
    reported = as_mapping(parse_json(pod.metadata.annotations.get(MEMBER)))
    pending = as_mapping(reported.get("pendingRestart"))
    online, state = reported.get("state") == "Online", _state(pod, reported)
    errant = str(reported.get("errantGtids") or "")
    return Member(
        pod=pod.key,
        instance=ordinal,
        role="Primary" if reported.get("primary") is True else "Replica",
        state=state,
        timeline_diverged=reported.get("diverged") is True,
        pending_restart=bool(pending),
        pending_settings=[_pending(name, values) for name, values in sorted(pending.items())],
        version=str(reported.get("version", "")),
        contract=parse_int(reported.get("contract")) or 0 if reported else None,
        storage={k: n for k, v in as_mapping(reported.get("storage")).items() if (n := parse_int(v)) is not None},
        apply_queue=parse_int(reported.get("applyQueue")) if online else None,
        errant_gtids=errant,
        maybe_errant=reported.get("maybeErrant") is True or bool(errant),
        rejected={str(k): str(v) for k, v in as_mapping(reported.get("rejectedParameters")).items()},
        restored_settings=_restored(as_mapping(reported.get("restoredParameters"))),
        missing_gtids=str(reported.get("missingGtids") or ""),
        unseen_instances=_numbers(reported.get("unseenInstances")),
        state_reason=str(
            (reported.get("startError") if state == "StartFailed" else "") or reported.get("reason") or ""
        ),
        write_error=str(reported.get("writeError") or ""),
        failing_operation=str(reported.get("failingOperation") or ""),
        crashes=parse_times(reported.get("crashes"), MAX_CRASHES),
    )


def _state(pod: Pod, reported: Mapping[str, Any]) -> MemberState:
    """Return the last reported state, but `Stopped` without running containers."""
    state = str(reported.get("state", ""))
    if not state:
        return "Unknown"
    if any(container.state.running is None for container in server_statuses(pod)):
        return "Stopped"
    if state == "Online":
        if reported.get("majority") is False:
            return "Isolated"
        return "Running" if reported.get("primary") is True else "Streaming"
    if state in ("Stopped", "Starting") and reported.get("startError"):
        return "StartFailed"
    return _STATES.get(state, "Unknown")


def _pending(name: str, values: Any) -> PendingSetting:
    previous, value, *_ = [*map(str, _list(values)), "", ""]
    return PendingSetting(name=name, previous=previous, value=value)


def _restored(reported: Mapping[str, Any]) -> RestoredSettings | None:
    with suppress(ValueError):
        time = datetime.fromisoformat(str(reported.get("time")))
        if time.tzinfo is not None:
            return RestoredSettings(time=time, parameters=sorted({*map(str, _list(reported.get("parameters")))}))
    return None


def _list(value: Any) -> Sequence[Any]:
    return cast(Sequence[Any], value) if isinstance(value, list) else ()


def _numbers(value: Any) -> frozenset[int] | None:
    """Return a set of numbers, or None if the value is invalid."""
    ordinals = frozenset(map(parse_int, _list(value)))
    return (
        frozenset(n for n in ordinals if n is not None) if isinstance(value, list) and None not in ordinals else None
    )
