"""What Patroni is told, and the pod that runs it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from database_support.cluster_views import view
from steersman.meta import Quantity
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.engines.cluster import ClusterView, Synchronous
from steersman_databases.engines.postgresql import hba, patroni
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster

ENGINE = PostgreSQLCluster()


def but(**changes: Any) -> ClusterView:
    return dataclasses.replace(view(), **changes)


@pytest.mark.parametrize(
    ("declared", "mode", "strict"),
    [
        (Synchronous(mode="Off"), False, False),
        (Synchronous(mode="Priority"), True, False),
        (Synchronous(mode="Quorum", standbys=2, required=True), "quorum", True),
    ],
)
def test_synchronous_modes(declared: Synchronous, mode: object, strict: bool) -> None:
    told = patroni.settings(but(synchronous=declared))
    assert told["synchronous_mode"] == mode and told["synchronous_mode_strict"] is strict
    assert told["synchronous_node_count"] == declared.standbys


def test_who_cannot_renew_its_lock_has_stopped_before_another_takes_it() -> None:
    told = patroni.settings(view())
    questions = 2 * 2  # `call_failsafe_member`: 2 s, asked again once
    refused = 2  # by a server that then falls silent: each try is given as long as all of them
    assert told["loop_wait"] + told["retry_timeout"] + refused + questions < told["ttl"]
    assert told["loop_wait"] + 2 * told["retry_timeout"] <= told["ttl"], "as Patroni demands"


def test_what_is_the_operators_wins_over_the_user_and_the_user_over_defaults() -> None:
    told = patroni.server_parameters(but(parameters={"ssl": "off", "max_wal_size": "3GB", "work_mem": "8MB"}))
    assert (told["ssl"], told["max_wal_size"], told["work_mem"]) == ("on", "3GB", "8MB")


@pytest.mark.parametrize(("data", "wal", "kept"), [("1Gi", None, "256MB"), ("100Gi", "8Gi", "2048MB")])
def test_a_slot_keeps_a_quarter_of_the_volume_that_wal_lies_on(data: str, wal: str | None, kept: str) -> None:
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
def test_the_log_has_room_for_two_segments(segment: int, data: str, least: str, most: str, kept: str) -> None:
    """A server starts with no less."""
    initial = dataclasses.replace(view().initial, wal_segment_size=segment)
    told = patroni.server_parameters(but(initial=initial, storage_size=Quantity(data)))
    sizes = (told["min_wal_size"], told["max_wal_size"], told["max_slot_wal_keep_size"])
    assert sizes == (least, most, kept)


def test_wal_of_its_own_volume_is_a_link() -> None:
    local = json.loads(patroni.local_configuration(but(wal_size=Quantity("1Gi"))))
    assert {"waldir": patroni.WAL} in local["bootstrap"]["initdb"]
    assert {"waldir": patroni.WAL} in local["postgresql"]["basebackup"]


def test_members_are_verified_by_authority_and_changes_want_a_certificate() -> None:
    local = json.loads(patroni.local_configuration(view()))
    assert local["restapi"]["verify_client"] == "optional" and local["restapi"]["cafile"].startswith(patroni.PEER)
    # Without a certificate `insecure` would mean that nobody is verified at all.
    assert local["ctl"]["insecure"] and local["ctl"]["certfile"] and local["ctl"]["cacert"].startswith(patroni.TLS)
    assert "password" not in json.dumps(local)


def test_users_lines_come_between_ours_and_the_general_ones() -> None:
    lines = hba.access_rules(["host all all 10.0.0.0/8 trust"], tls_required=True)
    users = lines.index("host all all 10.0.0.0/8 trust")
    for role in (*hba.BY_CERTIFICATE, hba.REPLICATION, hba.ADMINISTRATOR):
        for what in ("all", "replication"):
            assert lines.index(f"host {what} {role} all reject") < users
    encrypted = ("hostssl all all all scram-sha-256", "hostssl replication all all scram-sha-256")
    assert lines[users + 1 :] == encrypted
    plain = ("host all all all scram-sha-256", "host replication all all scram-sha-256")
    assert hba.access_rules([], tls_required=False)[-4:] == (*encrypted, *plain)


def test_without_superuser_access_the_administrator_comes_in_locally_only() -> None:
    def lines(**declared: Any) -> list[str]:
        return patroni.settings(view(postgresql=PostgreSQLSettings(**declared)))["postgresql"]["pg_hba"]

    taken, closed = "hostssl all postgres all scram-sha-256", lines(enable_superuser_access=False)
    assert taken in lines() and [line for line in lines() if line != taken] == closed
    about = [line for line in closed if line.split()[2] == "postgres"]
    assert about == [
        "local all postgres peer",
        "host all postgres all reject",
        "host replication postgres all reject",
    ]


def test_nobody_but_who_it_names_may_be_one_of_our_roles() -> None:
    mapped = [line.split()[1:] for line in hba.account_map()]
    assert all(account == role or account in ("postgres", hba.REPLICATION) for account, role in mapped)
    assert [hba.REPLICATION, hba.SUPERUSER] not in mapped and ["postgres", hba.SUPERUSER] not in mapped


def test_the_store_is_made_empty_and_bears_the_labels_that_patroni_asks_for() -> None:
    made = {part.key.name: part for part in ENGINE.objects(view())}
    name = view().key.name
    store = ("config", "leader", "sync", "failover", "timelines")
    assert set(made) == {f"{name}-{what}" for what in (*store, "patroni")}
    for what in store:
        metadata = msgspec.to_builtins(made[f"{name}-{what}"].metadata)
        assert metadata["labels"] == patroni.store_labels(view()) and "annotations" not in metadata
    slices = msgspec.to_builtins(made[f"{name}-patroni"])["data"]["slices"].split()
    assert slices == [f"{service}-{family}" for service in view().writable_services for family in ("ipv4", "ipv6")]


def test_a_fenced_pod_starts_nothing_and_is_no_member() -> None:
    fenced = ENGINE.pod(view(), 0, fenced=True)
    told = msgspec.to_builtins(fenced.server)
    assert told["command"][1:] == ["fenced"] and not fenced.labels
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & told.keys()
    assert told["volumeMounts"] == msgspec.to_builtins(ENGINE.pod(view(), 0).server)["volumeMounts"]


def test_a_pod_knows_the_version_that_is_declared_by_the_label_that_it_has_anyway() -> None:
    """Where the image is of another, its data are not its own to settle."""
    told = msgspec.to_builtins(ENGINE.pod(view(), 0).server)["env"]
    (source,) = (one["valueFrom"]["fieldRef"]["fieldPath"] for one in told if one["name"] == "DECLARED_VERSION")
    assert source == "metadata.labels['app.kubernetes.io/version']"


def test_servers_read_their_files_again_whenever_somebody_else_is_estranged() -> None:
    """Patroni has a server do so where a parameter with a dot in its name changes, and knows none of these."""
    none, two, one = (patroni.server_parameters(but(estranged=frozenset(those))) for those in ((), (1, 0), (1,)))
    assert "steersman.estranged" not in none
    assert (two["steersman.estranged"], one["steersman.estranged"]) == ("0 1", "1")
