"""Parameters that no instance has the memory for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from database_support.unit.planned_cluster import DECLARED, THREE, cluster_state, primary
from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.meta import FrozenDict, decode_builtins
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.mysql.config import parameters as mysql
from steersman_databases.engines.postgresql.config import parameters as postgresql
from steersman_databases.features.parameters.model import exceeding_memory

HALF = {"memory": "512Mi"}


def limited(limits: Mapping[str, int | str], **parameters: str) -> DeclaredCluster:
    pods = replace(DECLARED.pod_settings, resources=ResourceRequirements(limits=FrozenDict(limits)))
    return replace(DECLARED, pod_settings=pods, parameters=parameters)


def seen_with(*memory: str) -> ClusterState:
    """Instances whose containers were made with these limits."""
    made: list[Instance] = []
    for one, limit in zip(THREE, memory, strict=False):
        container = {"name": "server", "resources": {"limits": {"memory": limit}}}
        pod = {"metadata": {"name": f"orders-{one.ordinal}-0"}, "spec": {"containers": [container]}}
        made.append(replace(one, pod=decode_builtins(pod, Pod)))
    return cluster_state(made, primary(0))


@pytest.mark.parametrize(("value", "fits"), [("511MB", True), ("65535", True), ("65536", False), ("1GB", False)])
def test_shared_buffers_over_limit_is_rejected(value: str, fits: bool) -> None:
    found = exceeding_memory(limited(HALF, shared_buffers=value, work_mem="1TB"), postgresql.fixed_memory)
    assert ("shared_buffers" not in found) is fits and "work_mem" not in found


@pytest.mark.parametrize(("value", "fits"), [("511M", True), ("536870911", True), ("512M", False)])
def test_innodb_buffer_pool_over_limit_is_rejected(value: str, fits: bool) -> None:
    found = exceeding_memory(
        limited(HALF, innodb_buffer_pool_size=value, max_connections="9999999999"), mysql.fixed_memory
    )
    assert ("innodb_buffer_pool_size" not in found) is fits and "max_connections" not in found


@pytest.mark.parametrize("value", ["plenty", "1e999", "9" * 400])
def test_non_numeric_value_is_left_to_server(value: str) -> None:
    assert not exceeding_memory(limited(HALF, innodb_buffer_pool_size=value), mysql.fixed_memory)
    assert not exceeding_memory(limited(HALF, shared_buffers=value), postgresql.fixed_memory)


@pytest.mark.parametrize(("value", "exceeds"), [("150000000", False), ("200M", True)])
def test_transaction_limit_counts_three_times(value: str, exceeds: bool) -> None:
    declared = limited(HALF, group_replication_transaction_size_limit=value)
    assert bool(exceeding_memory(declared, mysql.fixed_memory)) is exceeds


def test_memory_limit_counts_huge_pages() -> None:
    both = limited({**HALF, "hugepages-2Mi": "1Gi"}, shared_buffers="1GB")
    assert not exceeding_memory(both, postgresql.fixed_memory)
    found = exceeding_memory(replace(both, parameters={"shared_buffers": "2GB"}), postgresql.fixed_memory)
    assert "512Mi + 1Gi" in found["shared_buffers"]
    assert not exceeding_memory(limited({}, shared_buffers="1TB"), postgresql.fixed_memory)


def test_future_container_limit_is_ignored() -> None:
    raised = limited({"memory": "4Gi"}, shared_buffers="1GB")
    assert not exceeding_memory(raised, postgresql.fixed_memory, seen_with("4Gi", "4Gi"))
    found = exceeding_memory(raised, postgresql.fixed_memory, seen_with("4Gi", "512Mi"))
    assert "= 1GB needs more than the memory limit of 512Mi" in found["shared_buffers"]
