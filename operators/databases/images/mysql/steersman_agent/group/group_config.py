"""Annotations of pods and of the group's ConfigMap, shared with the operator.

Owners of the annotations:

- The operator on the ConfigMap: `name` (the group's UUID), `instances` (numbers of all instances that have data or
  will), `parameters`, `switchover`, `consent`. The primary removes `switchover` after it has handled it.
- The operator on the ConfigMap while no member runs, after a restore in place: `group` with the next epoch alone, and
  another `name`, so that the restored instance founds another group.
- The members on the ConfigMap: `group`, written with its version as precondition. The primary also corrects a wrong
  `name`, because the ConfigMap may have been recreated during the life of the group. A founder by consent sets a
  new name.
- Each member on its own pod: `member`, and the label of its role.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from steersman_instance.gtids import GtidSet

from .decision import GroupMember, GroupState, MemberState, SwitchoverTarget

PREFIX = "databases.steersman.dev"
MEMBER = f"{PREFIX}/member-status"
GROUP = f"{PREFIX}/group-state"
GROUP_NAME = f"{PREFIX}/group-name"
INSTANCES = f"{PREFIX}/instances"
PARAMETERS = f"{PREFIX}/parameters"
SWITCHOVER = f"{PREFIX}/switchover-target"
CONSENT = f"{PREFIX}/force-recovery"
ROLE_LABEL = f"{PREFIX}/role"
INSTANCE_LABEL = f"{PREFIX}/instance"
CLUSTER_LABEL = f"{PREFIX}/cluster"


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Content of the ConfigMap: state for decisions, and settings of a server."""

    state: GroupState = field(default_factory=GroupState)
    version: str = ""
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def read_group_config(config_map: Mapping[str, Any]) -> GroupConfig:
    """Parse the group's ConfigMap. Invalid values count as missing."""
    annotations = _annotations(config_map)
    group = _as_mapping(_parse_json(annotations.get(GROUP)))
    switchover = annotations.get(SWITCHOVER)
    return GroupConfig(
        state=GroupState(
            epoch=_parse_int(group.get("epoch")) or 0,
            known_instances=frozenset(
                n for n in map(_parse_int, annotations.get(INSTANCES, "").split(",")) if n is not None
            ),
            members=_parse_int_set(group.get("members")),
            leader=_parse_int(group.get("leader")),
            leader_uuid=str(group.get("uuid", "")),
            leader_view=str(group.get("view", "")),
            forced_recovery_instance=_parse_int(annotations.get(CONSENT)),
            switchover=None if switchover is None else SwitchoverTarget(_parse_int(switchover)),
        ),
        version=str(config_map["metadata"]["resourceVersion"]),
        name=annotations.get(GROUP_NAME, ""),
        parameters={
            normalized_name(str(k)): str(v) for k, v in _as_mapping(_parse_json(annotations.get(PARAMETERS))).items()
        },
    )


def normalized_name(parameter: str) -> str:
    """Return the spelling of a system variable."""
    return parameter.strip().lower().replace("-", "_").removeprefix("loose_")


def group_patch(store: GroupState, version: str, name: str = "") -> Mapping[str, Any]:
    """Return a patch of the members' part of the ConfigMap.

    It fails if the version has changed.

    Args:
        name: name of the group to write, if not empty.
    """
    values: dict[str, Any] = {
        "epoch": store.epoch,
        "leader": store.leader,
        "uuid": store.leader_uuid,
        "view": store.leader_view,
    }
    if store.members is not None:
        values["members"] = sorted(store.members)
    annotations: dict[str, str | None] = {GROUP: json.dumps(values, sort_keys=True)}
    if name:
        annotations[GROUP_NAME] = name
    if store.forced_recovery_instance is None:
        annotations[CONSENT] = None
    return {"metadata": {"resourceVersion": version, "annotations": annotations}}


def members(pods: Sequence[Mapping[str, Any]]) -> list[GroupMember]:
    """Return the members that have reported a state.

    A terminating pod reports its actual state.
    """
    return [member for pod in pods if (member := _member(pod)) is not None]


def member_annotation(member: GroupMember, **additional: Any) -> str:
    """Return the annotation of a member.

    `additional` is for users and for the operator.
    """
    values = {
        "state": member.state,
        "primary": member.primary,
        "uuid": member.uuid,
        "address": member.address,
        "gtids": str(member.gtids),
        "epoch": member.epoch,
        **additional,
    }
    return json.dumps(values, sort_keys=True)


def _member(pod: Mapping[str, Any]) -> GroupMember | None:
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    reported = _as_mapping(_parse_json(_annotations(pod).get(MEMBER)))
    number = _parse_int(labels.get(INSTANCE_LABEL))
    if number is None or not reported:
        return None
    try:
        gtids = GtidSet.parse(str(reported.get("gtids", "")))
    except ValueError:
        return None
    spec: Mapping[str, Any] = pod.get("spec") or {}
    return GroupMember(
        instance=number,
        name=f"{spec.get('hostname', '')}.{spec.get('subdomain', '')}",
        state=cast(MemberState, reported.get("state")),
        primary=reported.get("primary") is True,
        uuid=str(reported.get("uuid", "")),
        address=str(reported.get("address", "")),
        gtids=gtids,
        epoch=_parse_int(reported.get("epoch")) or 0,
        queued=_parse_int(reported.get("applyQueue")) or 0,
    )


def _annotations(thing: Mapping[str, Any]) -> Mapping[str, str]:
    return thing["metadata"].get("annotations") or {}


def _parse_json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _parse_int_set(value: Any) -> frozenset[int] | None:
    """Return a set of numbers, or None if the value is invalid."""
    numbers = list(map(_parse_int, cast(Sequence[Any], value))) if isinstance(value, list) else [None]
    return None if None in numbers else frozenset(n for n in numbers if n is not None)


def _parse_int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
