"""What MySQL's servers are given beside what is declared."""

from __future__ import annotations

from dataclasses import replace

from planned_cluster import VIEW
from steersman_databases.engines.mysql.parameters import server_parameters

CLUSTER = replace(VIEW, kind="MySQLCluster", engine="mysql")


def test_tables_get_a_key_unless_somebody_wants_none() -> None:
    assert server_parameters(CLUSTER)["sql_generate_invisible_primary_key"] == "ON"
    declared = replace(CLUSTER, parameters={"sql_generate_invisible_primary_key": "OFF"})
    assert server_parameters(declared)["sql_generate_invisible_primary_key"] == "OFF"
