"""Connections of dumps' Jobs to servers and clusters."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.meta import decode_builtins, to_builtins
from steersman_databases.api import Database
from steersman_databases.features.dump.connection import (
    NotConnectable,
    connection_of,
    import_connection,
    server_files,
)


def database(**spec: Any) -> Database:
    """Return a Database by the wire names of its spec."""
    return decode_builtins({"metadata": {"name": "shop", "namespace": "sales"}, "spec": spec}, Database)


def files(found: Database) -> dict[str, str]:
    """Return the objects of the files by path."""
    volume: Any = to_builtins(server_files(connection_of(found)))
    sources = [next(iter(each.values())) for each in volume["projected"]["sources"]]
    assert all(each["optional"] for each in sources)
    return {item["path"]: f"{each['name']}/{item['key']}" for each in sources for item in each["items"]}


def test_server_connection_uses_declared_keys_and_authority() -> None:
    server = {
        "service": {"name": "db", "namespace": "infra"},
        "administrator": {"name": "root", "usernameKey": "login", "passwordKey": "pw"},
        "tls": {
            "mode": "VerifyCA",
            "ca": {"configMapKeyRef": {"name": "authority", "key": "bundle"}},
            "clientCertificate": "cert",
        },
    }
    found = database(engine="mysql", serverRef=server, databaseName="orders")
    document = connection_of(found).document()
    expected = {"host": "db.infra.svc", "port": 3306, "database": "orders", "tls": "VerifyCA", "administrator": ""}
    assert document == expected
    assert files(found) == {
        "username": "root/login",
        "password": "root/pw",
        "ca.crt": "authority/bundle",
        "tls.crt": "cert/tls.crt",
        "tls.key": "cert/tls.key",
    }


def test_cluster_connection_uses_operator_certificate() -> None:
    found = database(clusterRef={"name": "main"})
    connection = connection_of(found)
    assert (connection.host, connection.port, connection.tls) == ("main-rw.sales.svc", 5432, "VerifyFull")
    assert connection.administrator == "steersman_operator"
    assert files(found)["tls.key"] == "main-operator/tls.key"


def test_cluster_of_other_namespace_has_no_administrator() -> None:
    connection = connection_of(database(clusterRef={"name": "main", "namespace": "infra"}))
    assert (connection.host, connection.tls, connection.administrator) == ("main-rw.infra.svc", "Require", "")
    assert connection.files == ()


def test_administrator_of_other_namespace_is_refused() -> None:
    server = {"host": "db.example.com", "administrator": {"name": "root", "namespace": "infra"}}
    with pytest.raises(NotConnectable, match="Create the Secret in namespace sales"):
        connection_of(database(engine="postgresql", serverRef=server))


def test_import_connection_has_files_of_its_own() -> None:
    source = {
        "host": "old.example.com",
        "databaseName": "legacy",
        "credentials": {"name": "reader", "usernameKey": "login"},
        "tls": {"ca": {"secretKeyRef": {"name": "authority", "key": "bundle"}}, "clientCertificate": "cert"},
    }
    found = database(engine="mysql", version="9.7", bootstrap={"import": source})
    assert found.import_settings is not None
    connection = import_connection(found, found.import_settings)
    expected = {"host": "old.example.com", "port": 3306, "database": "legacy", "tls": "VerifyFull"}
    assert connection.document() == {**expected, "administrator": ""}
    volume: Any = to_builtins(server_files(connection, "source"))
    assert volume["name"] == "source"
    names = [each["secret"]["name"] for each in volume["projected"]["sources"]]
    assert names == ["reader", "authority", "cert"]


def test_import_of_own_server_connects_to_its_cluster() -> None:
    source = {"host": "old.example.com", "credentials": {"name": "reader"}}
    connection = connection_of(database(engine="postgresql", version="17", bootstrap={"import": source}))
    assert (connection.host, connection.administrator) == ("shop-rw.sales.svc", "steersman_operator")
