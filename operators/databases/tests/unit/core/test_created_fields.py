"""Fields of a created cluster that its `Database` withdraws."""

from __future__ import annotations

import pytest

from database_support.created_clusters import assert_withdrawn_fields_are_removed
from steersman.client import Client
from steersman_databases.api import PostgreSQLCluster
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


@pytest.mark.parametrize("applied_before", [False, True])
@virtual_time
async def test_withdrawn_fields_of_created_cluster_are_removed(applied_before: bool) -> None:
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(PostgreSQLCluster)
    await assert_withdrawn_fields_are_removed(Client(server), runtime, "default", applied_before=applied_before)
