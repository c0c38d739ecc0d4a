"""Wrong specs, each with the message that its author reads."""

from __future__ import annotations

import pytest

from database_support.database_under_test import DatabaseUnderTest
from devcluster.errors import CommandFailed

REFUSED = {
    "engine": ({"engine": "oracle"}, "spec.engine", 'supported values: "postgresql", "mysql"'),
    "no-version": ({"version": None}, "spec.version", "version is needed"),
    "version-type": ({"version": 17}, "spec.version", "expected string"),
    "size": ({"storageSize": "lots"}, "spec.storageSize", "should match"),
    "zero": ({"storageSize": "0"}, "spec.storageSize", "must be more than 0"),
    "policy": ({"deletionPolicy": "Maybe"}, "spec.deletionPolicy", 'supported values: "Retain", "Delete"'),
    "empty-name": ({"databaseName": ""}, "spec.databaseName", "at least 1"),
    "long-name": ({"databaseName": "x" * 65}, "spec.databaseName", "64"),
    "misspelt": ({"storagesize": "1Gi"}, "spec.storagesize", "field not declared in schema"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_apply(postgresql: DatabaseUnderTest, case: str) -> None:
    fields, path, message = REFUSED[case]
    with pytest.raises(CommandFailed) as refusal:
        postgresql.apply(**fields)
    assert path.rpartition(".")[2] in str(refusal.value)
    assert message in str(refusal.value)
    assert postgresql.get() is None


def test_a_name_that_no_service_can_have_is_refused(postgresql: DatabaseUnderTest) -> None:
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
    "shrink": ({"storageSize": "128Mi"}, "storageSize can grow but never shrink"),
}


def test_changes_that_are_refused(postgresql: DatabaseUnderTest) -> None:
    postgresql.apply()
    for fields, message in CHANGES.values():
        with pytest.raises(CommandFailed, match=message):
            postgresql.apply(**fields)
    # Writing the default down changes nothing.
    postgresql.apply(databaseName="orders", username="orders", storageSize="262144Ki")


def test_an_unknown_version_says_which_there_are(database: DatabaseUnderTest) -> None:
    known = {"postgresql": '"17"', "mysql": '"9.7"'}[database.engine]
    with pytest.raises(CommandFailed, match=rf'spec\.version: version "3\.14" .* is not supported: use .*{known}'):
        database.apply(version="3.14")
    assert database.get() is None


def test_reserved_names_are_refused_with_the_field(database: DatabaseUnderTest) -> None:
    reserved = {"postgresql": "template1", "mysql": "information_schema"}[database.engine]
    with pytest.raises(CommandFailed, match=rf'databaseName "{reserved}" cannot be used'):
        database.apply(databaseName=reserved, username="orders")
    assert database.get() is None


def test_a_strangers_object_is_not_taken_over(postgresql: DatabaseUnderTest) -> None:
    scope = f"--namespace={postgresql.namespace}"
    postgresql.cluster.kubectl("create", "service", "clusterip", "orders-primary", "--tcp=80", scope)
    before = postgresql.one("service", "orders-primary")["spec"]
    postgresql.apply()
    condition = postgresql.wait_reason("NameTaken")
    assert "orders-primary" in condition["message"]
    assert postgresql.one("service", "orders-primary")["spec"] == before
    postgresql.delete()
    assert postgresql.one("service", "orders-primary")["spec"] == before


@pytest.mark.parametrize("name", ["orders-admin", "orders-app"])
def test_a_strangers_secret_is_not_taken_over(postgresql: DatabaseUnderTest, name: str) -> None:
    scope = f"--namespace={postgresql.namespace}"
    postgresql.cluster.kubectl("create", "secret", "generic", name, "--from-literal=password=mine", scope)
    postgresql.apply()
    condition = postgresql.wait_reason("NameTaken")
    assert name in condition["message"]
    assert postgresql.secret(name.removeprefix("orders-")) == {"password": "mine"}
    postgresql.delete()
    assert postgresql.secret(name.removeprefix("orders-")) == {"password": "mine"}


@pytest.mark.disruptive
def test_an_unschedulable_pod_says_why(postgresql: DatabaseUnderTest) -> None:
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
