"""The words in which members and operator tell each other things, on the pods and in the ConfigMap of the group.

Everything is an annotation. Whose it is:

- The operator's on the ConfigMap: `name`, the group's UUID; `instances`, the numbers of all instances that have data
  or will; `parameters`; `switchover`; `consent`. The primary takes `switchover` away when it has dealt with it.
- The members' on the ConfigMap: `group`, by writes that are conditional on its version. Who leads also corrects
  `name` where it is not his group's: the ConfigMap may have been deleted and made anew while the group lived. Who
  founds a group by consent gives it another.
- Each member's on its own pod: `member`, and the label of its role.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from .decision import Member, State, Store, Switchover
from .gtids import GtidSet

PREFIX = "databases.steersman.dev"
MEMBER = f"{PREFIX}/member"
GROUP = f"{PREFIX}/group"
GROUP_NAME = f"{PREFIX}/group-name"
INSTANCES = f"{PREFIX}/instances"
PARAMETERS = f"{PREFIX}/parameters"
SWITCHOVER = f"{PREFIX}/switchover-to"
CONSENT = f"{PREFIX}/consent"
ROLE_LABEL = f"{PREFIX}/role"
INSTANCE_LABEL = f"{PREFIX}/instance"
MEMBER_OF_LABEL = f"{PREFIX}/member-of"


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """The ConfigMap as it was read: what counts for decisions, and beside it what it takes to run a server."""

    store: Store = field(default_factory=Store)
    version: str = ""
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def agreed(config_map: Mapping[str, Any]) -> Agreed:
    """What the group's ConfigMap says. What is nobody's language counts as not said."""
    said = _annotations(config_map)
    group = _mapping(_json(said.get(GROUP)))
    switchover = said.get(SWITCHOVER)
    return Agreed(
        store=Store(
            epoch=_whole(group.get("epoch")) or 0,
            instances=frozenset(n for n in map(_whole, said.get(INSTANCES, "").split(",")) if n is not None),
            members=_wholes(group.get("members")),
            leader=_whole(group.get("leader")),
            leader_uuid=str(group.get("uuid", "")),
            leader_view=str(group.get("view", "")),
            consent=_whole(said.get(CONSENT)),
            switchover=None if switchover is None else Switchover(_whole(switchover)),
        ),
        version=str(config_map["metadata"]["resourceVersion"]),
        name=said.get(GROUP_NAME, ""),
        parameters={plain(str(k)): str(v) for k, v in _mapping(_json(said.get(PARAMETERS))).items()},
    )


def plain(parameter: str) -> str:
    """The one of its spellings that system variables have."""
    return parameter.strip().lower().replace("-", "_").removeprefix("loose_")


def written(store: Store, version: str, name: str = "") -> Mapping[str, Any]:
    """A patch with the members' part of the ConfigMap, which is refused if it is not of this version any more.

    `name` is the group's, where that is to be written, too.
    """
    said: dict[str, Any] = {
        "epoch": store.epoch,
        "leader": store.leader,
        "uuid": store.leader_uuid,
        "view": store.leader_view,
    }
    if store.members is not None:
        said["members"] = sorted(store.members)
    annotations: dict[str, str | None] = {GROUP: json.dumps(said, sort_keys=True)}
    if name:
        annotations[GROUP_NAME] = name
    if store.consent is None:
        annotations[CONSENT] = None
    return {"metadata": {"resourceVersion": version, "annotations": annotations}}


def members(pods: Sequence[Mapping[str, Any]]) -> list[Member]:
    """Those that have said something. A pod on its way out says what it still is."""
    return [member for pod in pods if (member := _member(pod)) is not None]


def member_words(member: Member, **more: Any) -> str:
    """What a member says of itself; `more` is for people and for the operator."""
    said = {
        "state": member.state,
        "primary": member.primary,
        "uuid": member.uuid,
        "address": member.address,
        "gtids": str(member.gtids),
        "epoch": member.epoch,
        **more,
    }
    return json.dumps(said, sort_keys=True)


def _member(pod: Mapping[str, Any]) -> Member | None:
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    said = _mapping(_json(_annotations(pod).get(MEMBER)))
    number = _whole(labels.get(INSTANCE_LABEL))
    if number is None or not said:
        return None
    try:
        gtids = GtidSet.parse(str(said.get("gtids", "")))
    except ValueError:
        return None
    spec: Mapping[str, Any] = pod.get("spec") or {}
    return Member(
        instance=number,
        name=f"{spec.get('hostname', '')}.{spec.get('subdomain', '')}",
        state=cast(State, said.get("state")),
        primary=said.get("primary") is True,
        uuid=str(said.get("uuid", "")),
        address=str(said.get("address", "")),
        gtids=gtids,
        epoch=_whole(said.get("epoch")) or 0,
        queued=_whole(said.get("queued")) or 0,
    )


def _annotations(thing: Mapping[str, Any]) -> Mapping[str, str]:
    return thing["metadata"].get("annotations") or {}


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _wholes(value: Any) -> frozenset[int] | None:
    """None where it is no list of numbers: then nothing is known."""
    numbers = list(map(_whole, cast(Sequence[Any], value))) if isinstance(value, list) else [None]
    return None if None in numbers else frozenset(n for n in numbers if n is not None)


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
