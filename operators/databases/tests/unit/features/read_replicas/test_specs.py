"""Contract between the objects of a read replica and the program that its pod runs."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import UnsetType

from database_support.unit.declared_clusters import declared_cluster
from steersman.api.apply import core
from steersman.meta import Quantity, to_builtins
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.engines.naming import read_replica_slot
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.features.read_replicas.specs import (
    read_replica_configuration,
    read_replica_labels,
    read_replica_statefulset,
    volume_size,
)
from steersman_databases.specs.job_hash import POD_HASH
from steersman_instance import __main__ as programs
from steersman_instance.metrics.exporter import ENGINES, instance_labels
from steersman_instance.paths import PATHS
from steersman_instance.read_replica import program, report
from steersman_instance.read_replica.configuration import load, number_of, slot_name
from steersman_instance.services import SERVICES

CLUSTER = declared_cluster()
IMAGE = "steersman.dev/postgresql:17"


def pod() -> core.PodSpec:
    spec = read_replica_statefulset(CLUSTER, 2, image=IMAGE).spec
    assert not isinstance(spec, UnsetType)
    template = spec.template
    assert not isinstance(template, UnsetType) and not isinstance(template.spec, UnsetType)
    return template.spec


def test_containers_run_programs_of_the_image() -> None:
    server, agent = to_builtins(pod())["containers"]
    assert server["command"][0] == "steersman-instance"
    assert server["command"][1] in programs.PROGRAMS
    assert agent["command"][-1] in SERVICES
    [service] = SERVICES[agent["command"][-1]]()
    assert service.command[-1] in ENGINES
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports["report"] == report.PORT
    assert {server["image"], agent["image"]} == {IMAGE}
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert mounts["data"] == str(PATHS.volume)
    assert mounts["read-replica"] == str(program.DECLARATION.parent)
    assert {volume["name"] for volume in to_builtins(pod())["volumes"]} == mounts.keys()
    assert to_builtins(pod())["automountServiceAccountToken"] is False


def test_configuration_is_what_the_program_reads(tmp_path: Path) -> None:
    settings = patroni.dynamic_configuration(CLUSTER)
    config = read_replica_configuration(CLUSTER, settings, 12.5)
    assert not isinstance(config.data, UnsetType)
    [(name, content)] = config.data.items()
    assert name == program.DECLARATION.name
    (tmp_path / name).write_text(content)
    declaration = load(tmp_path / name)
    assert declaration.host == "orders-rw.shop.svc.cluster.local"
    assert declaration.parameters == settings["postgresql"]["parameters"]
    assert declaration.hba == settings["postgresql"]["pg_hba"]
    assert declaration.max_lag_seconds == 12.5
    assert json.loads(content)["ident"] == settings["postgresql"]["pg_ident"]


def test_names_agree_with_the_program() -> None:
    name = f"{CLUSTER.names.read_replica(2).name}-0"
    assert number_of(name) == 2
    assert slot_name(name) == read_replica_slot(2)
    assert instance_labels(name) == {"dbcluster": "orders"}
    assert CLUSTER.names.ordinal_of_instance(name) is None
    assert CLUSTER.names.ordinal_of_pvc(CLUSTER.names.read_replica_pvc(2).name) is None


def test_patroni_does_not_select_the_pod() -> None:
    labels = read_replica_labels(CLUSTER, 0)
    assert not patroni.dcs_labels(CLUSTER).items() <= {**labels, **patroni.dcs_labels(CLUSTER), **labels}.items()


def test_slots_are_declared_only_with_read_replicas() -> None:
    assert "slots" not in patroni.dynamic_configuration(CLUSTER)


def test_changed_resources_change_the_hash_of_the_pod() -> None:
    changed = declared_cluster(shm_size=Quantity("64Mi"))

    def pod_hash(of: object) -> str:
        return to_builtins(of)["spec"]["template"]["metadata"]["annotations"][POD_HASH]

    first = read_replica_statefulset(CLUSTER, 0, image=IMAGE)
    assert pod_hash(first) == pod_hash(read_replica_statefulset(CLUSTER, 0, image=IMAGE, replicas=0))
    assert pod_hash(first) != pod_hash(read_replica_statefulset(changed, 0, image=IMAGE))


def test_volume_has_room_for_data_and_wal() -> None:
    separate = declared_cluster(
        storage=VolumeSettings(size=Quantity("10Gi")), wal_storage=VolumeSettings(size=Quantity("2Gi"))
    )
    assert volume_size(separate) == Quantity("12Gi")
    assert volume_size(declared_cluster(storage=VolumeSettings(size=Quantity("10Gi")))) == Quantity("10Gi")
