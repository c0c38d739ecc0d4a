"""What Patroni is told, and the pod that runs it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import msgspec
import pytest

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import FrozenDict, Quantity
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.engines.cluster_engine import DeclaredCluster, DeclaredSlot, SynchronousReplication
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.engines.postgresql.config import hba
from steersman_databases.engines.postgresql.ha import patroni

ENGINE = PostgreSQLEngine()


def but(**changes: Any) -> DeclaredCluster:
    return dataclasses.replace(declared_cluster(), **changes)


@pytest.mark.parametrize(
    ("declared", "mode", "strict"),
    [
        (SynchronousReplication(mode="Disabled"), False, False),
        (SynchronousReplication(mode="Priority"), True, False),
        (SynchronousReplication(mode="Quorum", number=2, required=True), "quorum", True),
    ],
)
def test_synchronous_modes(declared: SynchronousReplication, mode: object, strict: bool) -> None:
    told = patroni.dynamic_configuration(but(synchronous=declared))
    assert told["synchronous_mode"] == mode and told["synchronous_mode_strict"] is strict
    assert told["synchronous_node_count"] == declared.number


@pytest.mark.parametrize(
    ("slot", "protected"),
    [
        ("debezium", True),
        ("orders_backup", True),
        ("other_1_0", True),
        ("orders_1_0_old", True),
        ("steersman_read", True),
        ("orders_1_0", False),
        ("orders_12_0", False),
        ("steersman_read_3", False),
    ],
)
def test_ignore_slots_protects_slots_of_users(slot: str, protected: bool) -> None:
    """An entry with a type covers all slots of it, one with a name those that it matches."""
    logical, named = patroni.dynamic_configuration(declared_cluster())["ignore_slots"]
    assert logical == {"type": "logical"}
    assert bool(re.fullmatch(named["name"], slot)) is protected


def test_declared_slots_are_permanent() -> None:
    slots = [DeclaredSlot("cdc", "pgoutput", "shop"), DeclaredSlot("receiver")]
    configuration = patroni.dynamic_configuration(but(replication_slots=slots, read_replicas=frozenset({1})))
    assert configuration["slots"] == {
        "steersman_read_1": {"type": "physical"},
        "cdc": {"type": "logical", "plugin": "pgoutput", "database": "shop"},
        "receiver": {"type": "physical"},
    }
    assert "slots" not in patroni.dynamic_configuration(declared_cluster())


def test_leader_lock_expires_before_succession() -> None:
    told = patroni.dynamic_configuration(declared_cluster())
    questions = 2 * 2  # `call_failsafe_member`: 2 s, asked again once
    refused = 2  # by a server that then falls silent: each try is given as long as all of them
    assert told["loop_wait"] + told["retry_timeout"] + refused + questions < told["ttl"]
    assert told["loop_wait"] + 2 * told["retry_timeout"] <= told["ttl"], "as Patroni demands"


def test_operator_parameters_override_user_and_defaults() -> None:
    told = patroni.server_parameters(but(parameters={"ssl": "off", "max_wal_size": "3GB", "work_mem": "8MB"}))
    assert (told["ssl"], told["max_wal_size"], told["work_mem"]) == ("on", "3GB", "8MB")


@pytest.mark.parametrize(("data", "wal", "kept"), [("1Gi", None, "256MB"), ("100Gi", "8Gi", "2048MB")])
def test_slot_wal_size_is_a_quarter_of_the_volume(data: str, wal: str | None, kept: str) -> None:
    sized = but(storage_size=Quantity(data), wal_size=Quantity(wal) if wal else None)
    assert patroni.server_parameters(sized)["max_slot_wal_keep_size"] == kept


@pytest.mark.parametrize(
    ("segment", "data", "least", "most", "kept"),
    [
        (16, "1Gi", "80MB", "256MB", "256MB"),
        (64, "1Gi", "128MB", "256MB", "256MB"),
        (64, "100Mi", "128MB", "128MB", "128MB"),
        (1024, "100Gi", "2048MB", "2048MB", "25600MB"),
    ],
)
def test_wal_size_has_room_for_two_segments(segment: int, data: str, least: str, most: str, kept: str) -> None:
    """A server starts with no less."""
    initial = dataclasses.replace(declared_cluster().bootstrap, wal_segment_size=segment)
    told = patroni.server_parameters(but(bootstrap=initial, storage_size=Quantity(data)))
    sizes = (told["min_wal_size"], told["max_wal_size"], told["max_slot_wal_keep_size"])
    assert sizes == (least, most, kept)


def test_wal_volume_is_a_symlink() -> None:
    local = json.loads(patroni.local_configuration(but(wal_size=Quantity("1Gi"))))
    assert {"waldir": patroni.WAL} in local["bootstrap"]["initdb"]
    assert {"waldir": patroni.WAL} in local["postgresql"]["basebackup"]


def test_rest_api_verifies_ca_and_client_certificate() -> None:
    local = json.loads(patroni.local_configuration(declared_cluster()))
    assert local["restapi"]["verify_client"] == "optional" and local["restapi"]["cafile"].startswith(patroni.PEER)
    # Without a certificate `insecure` would mean that nobody is verified at all.
    assert local["ctl"]["insecure"] and local["ctl"]["certfile"] and local["ctl"]["cacert"].startswith(patroni.TLS)
    assert "password" not in json.dumps(local)


def test_user_hba_lines_precede_general_ones() -> None:
    lines = hba.hba_lines(["host all all 10.0.0.0/8 trust"], tls_required=True)
    users = lines.index("host all all 10.0.0.0/8 trust")
    for role in (*hba.CERTIFICATE_ROLES, hba.REPLICATION_ROLE, hba.ADMINISTRATOR_ROLE):
        for what in ("all", "replication"):
            assert lines.index(f"host {what} {role} all reject") < users
    encrypted = ("hostssl all all all scram-sha-256", "hostssl replication all all scram-sha-256")
    assert lines[users + 1 :] == encrypted
    plain = ("host all all all scram-sha-256", "host replication all all scram-sha-256")
    assert hba.hba_lines([], tls_required=False)[-4:] == (*encrypted, *plain)


def test_superuser_without_network_access_is_local_only() -> None:
    def lines(**declared: Any) -> list[str]:
        return patroni.dynamic_configuration(declared_cluster(postgresql=PostgreSQLSettings(**declared)))[
            "postgresql"
        ]["pg_hba"]

    taken, closed = "hostssl all postgres all scram-sha-256", lines()
    opened = lines(enable_superuser_access=True)
    assert taken in opened and [line for line in opened if line != taken] == closed
    about = [line for line in closed if line.split()[2] == "postgres"]
    assert about == [
        "local all postgres peer",
        "host all postgres all reject",
        "host replication postgres all reject",
    ]


@pytest.mark.parametrize(
    ("version", "parameters", "reserved"),
    [
        ("15", {}, None),
        ("17", {}, "5"),
        ("17", {"max_connections": "23"}, "5"),
        ("17", {"max_connections": "22"}, None),
        ("17", {"superuser_reserved_connections": "90"}, None),
        ("17", {"reserved_connections": "2"}, "2"),
    ],
)
def test_connections_are_reserved_if_enough_remain(
    version: str, parameters: dict[str, str], reserved: str | None
) -> None:
    cluster = declared_cluster(version=version, postgresql=PostgreSQLSettings(parameters=FrozenDict(parameters)))
    assert patroni.server_parameters(cluster).get("reserved_connections") == reserved


def test_operator_roles_require_their_certificate() -> None:
    mapped = [line.split()[1:] for line in hba.ident_lines()]
    assert all(account == role or account in ("postgres", hba.REPLICATION_ROLE) for account, role in mapped)
    assert [hba.REPLICATION_ROLE, hba.SUPERUSER_ROLE] not in mapped and ["postgres", hba.SUPERUSER_ROLE] not in mapped


def test_dcs_objects_are_empty_with_patroni_labels() -> None:
    made = {part.key.name: part for part in ENGINE.supporting_objects(declared_cluster())}
    name = declared_cluster().key.name
    store = ("config", "leader", "sync", "failover", "timelines")
    assert set(made) == {f"{name}-{what}" for what in (*store, "patroni")}
    for what in store:
        metadata = msgspec.to_builtins(made[f"{name}-{what}"].metadata)
        assert metadata["labels"] == patroni.dcs_labels(declared_cluster()) and "annotations" not in metadata
    slices = msgspec.to_builtins(made[f"{name}-patroni"])["data"]["endpoint-slices"].split()
    assert slices == [
        f"{service}-{family}" for service in declared_cluster().writable_services for family in ("ipv4", "ipv6")
    ]


def test_fenced_pod_starts_no_server() -> None:
    fenced = ENGINE.pod_contribution(declared_cluster(), 0, fenced=True)
    told = msgspec.to_builtins(fenced.server)
    assert told["command"][1:] == ["fenced"] and not fenced.labels
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & told.keys()
    assert (
        told["volumeMounts"]
        == msgspec.to_builtins(ENGINE.pod_contribution(declared_cluster(), 0).server)["volumeMounts"]
    )


def test_pod_reads_declared_version_from_label() -> None:
    """Where the image is of another, its data are not its own to settle."""
    told = msgspec.to_builtins(ENGINE.pod_contribution(declared_cluster(), 0).server)["env"]
    (source,) = (one["valueFrom"]["fieldRef"]["fieldPath"] for one in told if one["name"] == "DECLARED_VERSION")
    assert source == "metadata.labels['app.kubernetes.io/version']"


def test_archiving_is_on_without_a_store() -> None:
    """Declaring a store later then restarts nothing."""
    parameters = patroni.server_parameters(declared_cluster())
    assert parameters["archive_mode"] == "always"
    assert "pgbackrest" in parameters["archive_command"]
    assert parameters["archive_timeout"] == "0s"
    assert patroni.server_parameters(but(archive_interval_seconds=45.0))["archive_timeout"] == "45s"


def test_agent_shares_volumes_with_server() -> None:
    parts = ENGINE.pod_contribution(declared_cluster(), 0)
    assert parts.agent is not None
    agent, server = msgspec.to_builtins(parts.agent), msgspec.to_builtins(parts.server)
    assert (agent["name"], agent["volumeMounts"]) == ("agent", server["volumeMounts"])
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & agent.keys()
    assert ENGINE.pod_contribution(declared_cluster(), 0, fenced=True).agent is None


def test_store_secret_is_optional() -> None:
    volumes = msgspec.to_builtins(ENGINE.pod_contribution(declared_cluster(), 0).volumes)
    (secret,) = (volume["secret"] for volume in volumes if volume["name"] == "backup")
    assert secret["optional"] is True
    (run,) = (volume["emptyDir"] for volume in volumes if volume["name"] == "run")
    assert run["medium"] == "Memory"


def test_distrusting_pods_trigger_reload() -> None:
    """Patroni has a server do so where a parameter with a dot in its name changes, and knows none of these."""
    none, two, one = (patroni.server_parameters(but(distrusting=frozenset(those))) for those in ((), (1, 0), (1,)))
    assert "steersman.distrusting" not in none
    assert (two["steersman.distrusting"], one["steersman.distrusting"]) == ("0 1", "1")
