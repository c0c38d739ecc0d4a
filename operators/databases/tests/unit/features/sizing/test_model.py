"""Parameters from resource limits, from 256 MiB to 64 GiB, and the mode of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from database_support.unit.declared_clusters import cluster
from database_support.unit.planned_cluster import DECLARED, THREE, cluster_state, primary
from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.meta import FrozenDict, Quantity, decode_builtins
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.autopilot.sizing import Sizing, SizingStatus
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine
from steersman_databases.engines.mysql.config.parameters import server_parameters
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.features.sizing.model import mode_of, with_sizing

POSTGRESQL, MYSQL = PostgreSQLEngine(), MySQLEngine()
SEEN = cluster_state(THREE, primary(0))
MODES: tuple[Sizing, Sizing] = ("Defaults", "FromResources")
MEMORY = ("shared_buffers", "effective_cache_size", "maintenance_work_mem", "work_mem")


def limited(memory: str | None = None, cpu: str | None = None, **declared: Any) -> DeclaredCluster:
    limits = {name: value for name, value in (("memory", memory), ("cpu", cpu)) if value is not None}
    pods = replace(DECLARED.pod_settings, resources=ResourceRequirements(limits=FrozenDict[str, int | str](limits)))
    return replace(DECLARED, pod_settings=pods, storage_size=Quantity("100Gi"), **declared)


def pod_with(memory: str) -> Pod:
    spec = {"containers": [{"name": "server", "resources": {"limits": {"memory": memory}}}]}
    return decode_builtins({"metadata": {"name": "server-0"}, "spec": spec}, Pod)


def running_with(memory: str) -> ClusterState:
    """Pods that were created with this limit."""
    pods = [pod_with(memory) for _ in range(3)]
    return cluster_state([replace(one, pod=pod) for one, pod in zip(THREE, pods, strict=True)], primary(0))


def sized(engine: Any, declared: DeclaredCluster, state: ClusterState = SEEN) -> dict[str, str]:
    found, _ = with_sizing(declared, "FromResources", state, engine)
    return {one.name: one.value for one in found.sized}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("256Mi", ("64MB", "179MB", "16MB", "4MB")),
        ("512Mi", ("128MB", "358MB", "32MB", "4MB")),
        ("768Mi", ("192MB", "537MB", "48MB", "4MB")),
        ("1Gi", ("256MB", "716MB", "64MB", "4MB")),
        ("4Gi", ("1024MB", "2867MB", "256MB", "7MB")),
        ("16Gi", ("4096MB", "11468MB", "1024MB", "30MB")),
        ("64Gi", ("16384MB", "45875MB", "1024MB", "64MB")),
    ],
)
def test_postgresql_memory_follows_limit(limit: str, expected: tuple[str, ...]) -> None:
    found = sized(POSTGRESQL, limited(limit))
    assert tuple(found[name] for name in MEMORY) == expected
    assert (found["random_page_cost"], found["wal_compression"]) == ("1.1", "lz4")
    assert "max_parallel_workers" not in found, "without a CPU limit"


@pytest.mark.parametrize(
    ("cpu", "workers", "per_query", "processes"),
    [
        ("100m", "1", "0", None),
        ("1", "1", "0", None),
        ("1500m", "2", "1", None),
        ("8", "8", "4", None),
        ("16", "16", "4", "16"),
    ],
)
def test_postgresql_workers_follow_cpus(cpu: str, workers: str, per_query: str, processes: str | None) -> None:
    found = sized(POSTGRESQL, limited("1Gi", cpu))
    assert (found["max_parallel_workers"], found.get("max_worker_processes")) == (workers, processes)
    assert found["max_parallel_workers_per_gather"] == found["max_parallel_maintenance_workers"] == per_query


@pytest.mark.parametrize(
    ("limit", "pool", "instances", "redo", "temporary", "messages"),
    [
        ("256Mi", "64M", "1", None, "16M", "128M"),
        ("512Mi", "64M", "1", None, "32M", "128M"),
        ("768Mi", "64M", "1", None, "48M", "128M"),
        ("1Gi", "256M", "1", "128M", "64M", "128M"),
        ("1536Mi", "640M", "1", "320M", "96M", "192M"),
        ("2Gi", "1024M", "1", "512M", "128M", "256M"),
        ("4Gi", "2176M", "1", "1088M", "256M", "512M"),
        ("16Gi", "8704M", "4", "4352M", "1024M", "1024M"),
        ("64Gi", "35840M", "8", "6400M", "1024M", "1024M"),
    ],
)
def test_mysql_memory_follows_limit(
    limit: str, pool: str, instances: str, redo: str | None, temporary: str, messages: str
) -> None:
    found = sized(MYSQL, limited(limit))
    assert (found["innodb_buffer_pool_size"], found.get("innodb_redo_log_capacity")) == (pool, redo)
    assert found["innodb_buffer_pool_instances"] == instances
    assert found["temptable_max_ram"] == temporary
    assert found["group_replication_message_cache_size"] == messages
    assert ("table_open_cache" in found) is (limit in ("4Gi", "16Gi", "64Gi"))


def used_mib(found: dict[str, str], connections: int = 151) -> int:
    """Memory of a server whose caches and connections use all that they may."""
    pool, instances = int(found["innodb_buffer_pool_size"][:-1]), int(found["innodb_buffer_pool_instances"])
    unit = 128 * instances if pool > 1024 else 128
    rounded = -(-pool // unit) * unit if pool >= 128 else pool
    others = (found["temptable_max_ram"], found["group_replication_message_cache_size"])
    return 335 + connections + rounded + sum(int(value[:-1]) for value in others)


@pytest.mark.parametrize("limit", ["768Mi", "1Gi", "1536Mi", "2Gi", "4Gi", "8Gi", "16Gi", "40Gi", "64Gi"])
def test_mysql_fits_limit(limit: str) -> None:
    assert used_mib(sized(MYSQL, limited(limit))) < int(Quantity(limit).value) >> 20


def test_mysql_pool_respects_declared_parameters() -> None:
    declared = {"innodb_buffer_pool_instances": "64"}
    # Units are 8 GiB. A pool below 1 GiB has one instance.
    assert sized(MYSQL, limited("16Gi", parameters=declared))["innodb_buffer_pool_size"] == "8192M"
    assert sized(MYSQL, limited("4Gi", parameters=declared))["innodb_buffer_pool_size"] == "896M"
    chunks = {"innodb_buffer_pool_chunk_size": "1G"}
    assert sized(MYSQL, limited("16Gi", parameters=chunks))["innodb_buffer_pool_size"] == "8192M"
    temporary = {"temptable_max_ram": "512M"}
    assert sized(MYSQL, limited("2Gi", parameters=temporary))["innodb_buffer_pool_size"] == "640M"
    given = sized(MYSQL, limited("16Gi", parameters={"innodb_buffer_pool_size": "2G"}))
    assert "innodb_buffer_pool_instances" not in given, "it would round up the declared size"


def test_io_workers_follow_cpus_from_18_on() -> None:
    assert sized(POSTGRESQL, limited("1Gi", "16", version="18"))["io_workers"] == "4"
    assert "io_workers" not in sized(POSTGRESQL, limited("1Gi", "12", version="18"))
    assert "io_workers" not in sized(POSTGRESQL, limited("1Gi", "16"))


def test_declared_parameter_overrides_and_counts() -> None:
    declared = limited("4Gi", parameters={"shared_buffers": "2GB", "max_connections": "50"})
    found = sized(POSTGRESQL, declared)
    assert "shared_buffers" not in found and found["work_mem"] == "10MB"
    many = sized(MYSQL, limited("4Gi", parameters={"max_connections": "2000"}))
    assert many["innodb_buffer_pool_size"] == "896M" and used_mib(many, 2000) < 4096
    given, _ = with_sizing(declared, "FromResources", SEEN, POSTGRESQL)
    assert patroni.server_parameters(given)["shared_buffers"] == "2GB"


def test_values_fit_present_pods_until_recreated() -> None:
    raised = sized(POSTGRESQL, limited("1Gi"), running_with("768Mi"))
    assert (raised["shared_buffers"], raised["maintenance_work_mem"]) == ("256MB", "48MB")
    assert sized(POSTGRESQL, limited("16Gi"), running_with("768Mi"))["shared_buffers"] == "384MB"
    assert sized(MYSQL, limited("16Gi"), running_with("768Mi"))["innodb_buffer_pool_size"] == "64M"
    lowered = sized(POSTGRESQL, limited("512Mi"), running_with("768Mi"))
    assert (lowered["shared_buffers"], lowered["maintenance_work_mem"]) == ("128MB", "32MB")


def test_values_fit_present_read_replica() -> None:
    replica, declared = pod_with("768Mi"), limited("1Gi")
    found, _ = with_sizing(declared, "FromResources", SEEN, POSTGRESQL, [replica])
    values = {one.name: one.value for one in found.sized}
    assert (values["shared_buffers"], values["maintenance_work_mem"]) == ("256MB", "48MB")


def test_no_memory_limit_keeps_defaults() -> None:
    declared, status = with_sizing(limited(cpu="4"), "FromResources", SEEN, POSTGRESQL)
    assert declared.sized == () and status.parameters == () and status.mode == "FromResources"
    assert status.message == "spec.resources has no memory limit, so the defaults apply"


def test_defaults_size_nothing() -> None:
    declared, status = with_sizing(limited("4Gi"), "Defaults", SEEN, MYSQL)
    assert declared.sized == () and status == SizingStatus(mode="Defaults")
    assert "innodb_buffer_pool_size" not in server_parameters(declared)


@pytest.mark.parametrize("provisioned", [False, True])
def test_mode_is_declared_or_recorded_or_from_age(provisioned: bool) -> None:
    found = cluster()
    assert mode_of(found, was_provisioned=provisioned) == ("Defaults" if provisioned else "FromResources")
    for mode in MODES:
        assert mode_of(with_status(found, mode), was_provisioned=provisioned) == mode
        declared = with_status(cluster(postgresql=PostgreSQLSettings(sizing=mode)), "Defaults")
        assert mode_of(declared, was_provisioned=provisioned) == mode


def with_status(found: PostgreSQLCluster, mode: Sizing) -> PostgreSQLCluster:
    return structs.replace(found, status=PostgreSQLClusterStatus(sizing=SizingStatus(mode=mode)))
