"""Parameters that no instance has the memory for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from database_support.planned_cluster import THREE, VIEW, observed, primary
from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.meta import FrozenDict, decode_builtins
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.parameters import too_large
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.mysql import parameters as mysql
from steersman_databases.engines.postgresql import parameters as postgresql

HALF = {"memory": "512Mi"}


def limited(limits: Mapping[str, int | str], **parameters: str) -> ClusterView:
    pods = replace(VIEW.pods, resources=ResourceRequirements(limits=FrozenDict(limits)))
    return replace(VIEW, pods=pods, parameters=parameters)


def seen_with(*memory: str) -> Observed:
    """Instances whose containers were made with these limits."""
    made: list[Instance] = []
    for one, limit in zip(THREE, memory, strict=False):
        container = {"name": "server", "resources": {"limits": {"memory": limit}}}
        pod = {"metadata": {"name": f"orders-{one.number}-0"}, "spec": {"containers": [container]}}
        made.append(replace(one, pod=decode_builtins(pod, Pod)))
    return observed(made, primary(0))


@pytest.mark.parametrize(("value", "fits"), [("511MB", True), ("65535", True), ("65536", False), ("1GB", False)])
def test_shared_buffers(value: str, fits: bool) -> None:
    found = too_large(limited(HALF, shared_buffers=value, work_mem="1TB"), postgresql.held)
    assert ("shared_buffers" not in found) is fits and "work_mem" not in found


@pytest.mark.parametrize(("value", "fits"), [("511M", True), ("536870911", True), ("512M", False)])
def test_a_buffer_pool(value: str, fits: bool) -> None:
    found = too_large(limited(HALF, innodb_buffer_pool_size=value, max_connections="9999999999"), mysql.held)
    assert ("innodb_buffer_pool_size" not in found) is fits and "max_connections" not in found


@pytest.mark.parametrize("value", ["plenty", "1e999", "9" * 400])
def test_what_is_no_number_is_for_others_to_refuse(value: str) -> None:
    assert not too_large(limited(HALF, innodb_buffer_pool_size=value), mysql.held)
    assert not too_large(limited(HALF, shared_buffers=value), postgresql.held)


def test_huge_pages_are_memory_and_no_limit_is_none() -> None:
    both = limited({**HALF, "hugepages-2Mi": "1Gi"}, shared_buffers="1GB")
    assert not too_large(both, postgresql.held)
    found = too_large(replace(both, parameters={"shared_buffers": "2GB"}), postgresql.held)
    assert "512Mi + 1Gi" in found["shared_buffers"]
    assert not too_large(limited({}, shared_buffers="1TB"), postgresql.held)


def test_a_limit_that_a_container_does_not_have_yet_does_not_count() -> None:
    raised = limited({"memory": "4Gi"}, shared_buffers="1GB")
    assert not too_large(raised, postgresql.held, seen_with("4Gi", "4Gi"))
    found = too_large(raised, postgresql.held, seen_with("4Gi", "512Mi"))
    assert "= 1GB leaves nothing of the limit of 512Mi" in found["shared_buffers"]
