"""The ConfigMap, the label, and the document of GET /leader."""

from __future__ import annotations

import json

from steersman.api.apply import core

from leader_operator.api.v1.leaderservice import GROUP, Leader, LeaderService
from leader_operator.resources.services import object_metadata


def role_label(service: LeaderService) -> str:
    """Return the label of the leading pod. Its value is ``leader``."""
    return f"{service.metadata.name}.{GROUP}/role"


def leader_document(leader: Leader | None) -> str:
    """Return the JSON of GET /leader and of the ConfigMap."""
    if leader is None:
        return json.dumps({"leader": None, "term": 0, "address": None}) + "\n"
    return json.dumps({"leader": leader.pod, "term": leader.term, "address": leader.address}) + "\n"


def config_map(service: LeaderService, name: str, leader: Leader | None) -> core.ConfigMap:
    """Return the ConfigMap with the leader."""
    return core.ConfigMap(metadata=object_metadata(service, name), data={"leader.json": leader_document(leader)})
