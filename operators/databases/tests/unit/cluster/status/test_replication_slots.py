"""Declared replication slots, and slots that retain WAL, in conditions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from database_support.unit.planned_cluster import DECLARED, cluster_state, instance, member, primary
from steersman.api.core_v1 import ConfigMap
from steersman.cache import InformerEvent
from steersman.meta import FrozenDict, ObjectMeta
from steersman_databases.cluster.parts.predicates import is_significant
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.cluster.status.postgresql import evaluate_slots
from steersman_databases.cluster.status.storage import evaluate_storage
from steersman_databases.engines.cluster_engine import DeclaredSlot
from steersman_databases.features.storage.usage import USAGE

CDC = replace(DECLARED, replication_slots=[DeclaredSlot("cdc", "pgoutput", "shop"), DeclaredSlot("receiver")])


def with_slots(*names: str) -> ClusterState:
    state = cluster_state([instance(0), instance(1)], primary(0), member(1))
    return replace(state, members=replace(state.members, slots=frozenset(names)))


def evaluated(declared: Any, state: ClusterState) -> tuple[bool | None, str, str] | None:
    conditions = ConditionSet()
    evaluate_slots(declared, state, conditions)
    found = conditions.updates.get("ReplicationSlotsReady")
    return None if found is None else (found.holds, found.reason, found.message)


def test_evaluate_slots_names_missing_ones() -> None:
    assert evaluated(CDC, with_slots("cdc", "receiver", "orders_1_0")) == (
        True,
        "Created",
        "the primary has all declared replication slots",
    )
    assert evaluated(CDC, with_slots("receiver")) == (
        False,
        "SlotMissing",
        "primary orders-0 does not have the declared replication slots cdc",
    )
    assert evaluated(DECLARED, with_slots("cdc")) is None


def test_evaluate_slots_without_primary_keeps_condition() -> None:
    assert evaluated(CDC, cluster_state([instance(0), instance(1)], member(0), member(1))) is None


def leader(slots: str) -> ConfigMap:
    annotations = FrozenDict({"leader": "orders-0-0", "slots": slots})
    return ConfigMap(metadata=ObjectMeta(name="orders-leader", namespace="shop", annotations=annotations))


def change(old: ConfigMap, new: ConfigMap) -> InformerEvent[ConfigMap]:
    return InformerEvent(old=old, new=new)


def test_positions_of_slots_are_no_significant_change() -> None:
    one = leader('{"a":1,"b":2}')
    assert not is_significant(change(one, leader('{"b":9,"a":8}')))
    assert is_significant(change(one, leader('{"a":1}')))
    assert is_significant(change(one, leader("[")))


def test_full_volume_names_slot_that_retains_wal() -> None:
    one = instance(0)
    assert one.pod is not None
    usage = {
        "size": 100,
        "available": 4,
        "retainedBy": "replication slot debezium",
        "retained": "2.1 GiB WAL (no client uses it)",
    }
    annotations = FrozenDict({**one.pod.metadata.annotations, USAGE: json.dumps({"data": usage})})
    metadata = msgspec.structs.replace(one.pod.metadata, annotations=annotations)
    one = replace(one, pod=msgspec.structs.replace(one.pod, metadata=metadata))
    conditions = ConditionSet()
    evaluate_storage(DECLARED, cluster_state([one], replace(primary(0), storage={"data": 95})), conditions)
    found = conditions.updates["StorageSufficient"]
    assert found.reason == "RunningLow"
    assert found.message == (
        "volume data-orders-0 is over 95 % full; replication slot debezium of orders-0 retains 2.1 GiB WAL "
        "(no client uses it)"
    )
