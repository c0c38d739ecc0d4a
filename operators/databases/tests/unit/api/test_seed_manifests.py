"""The manifests of the articles that the operator goes back to: taken as they stand, but for the group."""

from __future__ import annotations

import pytest
import yaml

from steersman.meta import decode_builtins
from steersman_databases.api import DatabaseUser, PostgreSQLCluster
from steersman_manifests.crd import violations

CLUSTER = """
apiVersion: databases.steersman.dev/v1alpha1
kind: PostgreSQLCluster
metadata:
  name: my-postgres-cluster
spec:
  instances: 3
  postgresql:
    parameters:
      max_connections: "200"
      shared_buffers: "256MB"
  bootstrap:
    initdb:
      database: myapp
      owner: myuser
"""
USER = """
apiVersion: databases.steersman.dev/v1alpha1
kind: DatabaseUser
metadata:
  labels:
    target: that-database
  name: cnhandsomeguy
spec:
  user: cnhandsomeguy
  password:
    name: my-secret
    key: my-key
"""


@pytest.mark.requirement("overview/postgresql-cluster")
def test_postgresql_cluster() -> None:
    cluster = decode_builtins(yaml.safe_load(CLUSTER), PostgreSQLCluster)
    assert violations(cluster) == ()
    assert cluster.spec.postgresql.parameters == {"max_connections": "200", "shared_buffers": "256MB"}
    assert cluster.spec.bootstrap is not None
    initdb = cluster.spec.bootstrap.initdb
    assert initdb is not None
    assert (initdb.database, initdb.owner) == ("myapp", "myuser")
    assert cluster.synchronous_mode == "Quorum"


@pytest.mark.requirement("user/database-user")
def test_database_user() -> None:
    user = decode_builtins(yaml.safe_load(USER), DatabaseUser)
    assert violations(user) == ()
    assert user.metadata.labels["target"] == "that-database"
    assert user.spec.password is not None
    assert (user.spec.password.name, user.spec.password.key) == ("my-secret", "my-key")
