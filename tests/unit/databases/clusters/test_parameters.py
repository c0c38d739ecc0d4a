"""Parameters that no instance has the memory for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planned_cluster import VIEW
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict
from steersman_databases.clusters.parameters import too_large
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.mysql import parameters as mysql
from steersman_databases.engines.postgresql import parameters as postgresql

HALF = {"memory": "512Mi"}


def limited(limits: Mapping[str, int | str], **parameters: str) -> ClusterView:
    pods = replace(VIEW.pods, resources=ResourceRequirements(limits=FrozenDict(limits)))
    return replace(VIEW, pods=pods, parameters=parameters)


@pytest.mark.parametrize(
    ("value", "fits"), [("512MB", True), ("65536", True), ("65537", False), ("1GB", False), ("plenty", True)]
)
def test_shared_buffers(value: str, fits: bool) -> None:
    found = too_large(limited(HALF, shared_buffers=value, work_mem="1TB"), postgresql.held)
    assert ("shared_buffers" not in found) is fits and "work_mem" not in found


@pytest.mark.parametrize(("value", "fits"), [("512M", True), ("536870912", True), ("513M", False), ("plenty", True)])
def test_a_buffer_pool(value: str, fits: bool) -> None:
    found = too_large(limited(HALF, innodb_buffer_pool_size=value, max_connections="9999999999"), mysql.held)
    assert ("innodb_buffer_pool_size" not in found) is fits and "max_connections" not in found


def test_huge_pages_are_memory_and_no_limit_is_none() -> None:
    both = limited({**HALF, "hugepages-2Mi": "1Gi"}, shared_buffers="1GB")
    assert not too_large(both, postgresql.held)
    assert (
        "512Mi + 1Gi"
        in too_large(replace(both, parameters={"shared_buffers": "2GB"}), postgresql.held)["shared_buffers"]
    )
    assert not too_large(limited({}, shared_buffers="1TB"), postgresql.held)
