"""Wrong specs, each with the message that its author reads."""

from __future__ import annotations

import pytest

from database_support.e2e.database import DatabaseUnderTest
from devcluster.errors import CommandFailed

REFUSED = {
    "engine": ({"engine": "oracle"}, "spec.engine", 'supported values: "postgresql", "mysql"'),
    "no-version": ({"version": None}, "spec.version", "version is required"),
    "version-type": ({"version": 17}, "spec.version", "expected string"),
    "size": ({"storageSize": "lots"}, "spec.storageSize", "should match"),
    "zero": ({"storageSize": "0"}, "spec.storageSize", "must be greater than 0"),
    "policy": ({"deletionPolicy": "Maybe"}, "spec.deletionPolicy", 'supported values: "Retain", "Delete"'),
    "empty-name": ({"databaseName": ""}, "spec.databaseName", "at least 1"),
    "long-name": ({"databaseName": "x" * 65}, "spec.databaseName", "64"),
    "misspelt": ({"storagesize": "1Gi"}, "spec.storagesize", "field not declared in schema"),
}


@pytest.mark.requirement("programming/validation")
@pytest.mark.parametrize("case", REFUSED)
def test_invalid_spec_is_rejected_at_apply(postgresql: DatabaseUnderTest, case: str) -> None:
    fields, path, message = REFUSED[case]
    with pytest.raises(CommandFailed) as refusal:
        postgresql.apply(**fields)
    assert path.rpartition(".")[2] in str(refusal.value)
    assert message in str(refusal.value)
    assert postgresql.get() is None


def test_name_invalid_for_service_is_rejected(postgresql: DatabaseUnderTest) -> None:
    postgresql.name = "9lives"
    with pytest.raises(CommandFailed, match=r"metadata\.name must be"):
        postgresql.apply()
    postgresql.name = "x" * 46
    with pytest.raises(CommandFailed, match=r"metadata\.name must be"):
        postgresql.apply()


CHANGES = {
    "engine": ({"engine": "mysql"}, r"spec\.engine: .*the field is immutable"),
    "databaseName": ({"databaseName": "other"}, "databaseName is immutable"),
    "username": ({"username": "other"}, "username is immutable"),
    "shrink": ({"storageSize": "128Mi"}, "storageSize cannot be lowered below"),
}


def test_immutable_change_is_rejected(postgresql: DatabaseUnderTest) -> None:
    postgresql.apply()
    for fields, message in CHANGES.values():
        with pytest.raises(CommandFailed, match=message):
            postgresql.apply(**fields)
    # Writing the default down changes nothing.
    postgresql.apply(databaseName="orders", username="orders", storageSize="262144Ki")


@pytest.mark.requirement("overview/level-2-versions")
def test_unknown_version_lists_supported_versions(database: DatabaseUnderTest) -> None:
    known = {"postgresql": '"17"', "mysql": '"9.7"'}[database.engine]
    with pytest.raises(CommandFailed, match=rf'spec\.version: version "3\.14" .* is not supported. Use .*{known}'):
        database.apply(version="3.14")
    assert database.get() is None


def test_reserved_name_is_rejected_with_field(database: DatabaseUnderTest) -> None:
    reserved = {"postgresql": "template1", "mysql": "information_schema"}[database.engine]
    with pytest.raises(CommandFailed, match=rf'databaseName "{reserved}" cannot be used'):
        database.apply(databaseName=reserved, username="orders")
    assert database.get() is None


def test_foreign_object_is_not_adopted(postgresql: DatabaseUnderTest) -> None:
    scope = f"--namespace={postgresql.namespace}"
    postgresql.cluster.kubectl("create", "service", "clusterip", "orders-primary", "--tcp=80", scope)
    before = postgresql.get_object("service", "orders-primary")["spec"]
    postgresql.apply()
    condition = postgresql.wait_reason("NameConflict")
    assert "orders-primary" in condition["message"]
    assert postgresql.get_object("service", "orders-primary")["spec"] == before
    postgresql.delete()
    assert postgresql.get_object("service", "orders-primary")["spec"] == before


@pytest.mark.parametrize("name", ["orders-admin", "orders-app"])
def test_foreign_secret_is_not_adopted(postgresql: DatabaseUnderTest, name: str) -> None:
    scope = f"--namespace={postgresql.namespace}"
    postgresql.cluster.kubectl("create", "secret", "generic", name, "--from-literal=password=mine", scope)
    postgresql.apply()
    condition = postgresql.wait_reason("NameConflict")
    assert name in condition["message"]
    assert postgresql.secret(name.removeprefix("orders-")) == {"password": "mine"}
    postgresql.delete()
    assert postgresql.secret(name.removeprefix("orders-")) == {"password": "mine"}


@pytest.mark.disruptive
def test_unschedulable_pod_reports_reason(postgresql: DatabaseUnderTest) -> None:
    cluster = postgresql.cluster
    nodes = cluster.kubectl("get", "nodes", "--output=name").split()
    for node in nodes:
        cluster.kubectl("cordon", node)
    try:
        postgresql.apply()
        condition = postgresql.wait_reason("Unschedulable")
        assert postgresql.status["phase"] == "Pending"
        assert "unschedulable" in condition["message"]
        _check_event(postgresql, "Unschedulable")
    finally:
        for node in nodes:
            cluster.kubectl("uncordon", node)
    postgresql.wait_ready()


def _check_event(database: DatabaseUnderTest, reason: str) -> None:
    def told() -> bool:
        return any(e["reason"] == reason and e["type"] == "Warning" for e in database.events())

    database.eventually(f"a Warning {reason} is there", told, seconds=15)
