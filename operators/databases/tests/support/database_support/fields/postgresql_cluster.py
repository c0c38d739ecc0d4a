"""Every field of a PostgreSQLCluster's spec."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from database_support.fields.backup import CASES as BACKUP_CASES
from database_support.fields.cluster import (
    COMMON,
    COMMON_FINAL,
    ClusterObjects,
    FieldCase,
    FieldCases,
    Object,
    autogrow,
    cpu,
    image,
    memory,
    resource,
    volume,
)
from devcluster.images import POSTGRESQL

OTHER_IMAGE = "steersman.dev/postgresql:17-other"


def shown(parameter: str) -> Callable[[ClusterObjects], Any]:
    return lambda found: found.cluster.sql(f"SHOW {parameter}")


def pooling(key: str) -> Callable[[ClusterObjects], str | None]:
    """A setting of PgBouncer."""

    def look(found: ClusterObjects) -> str | None:
        if "rw" not in found.poolers:
            return None
        files = [m for m in found.cluster.namespace_client.all("configmaps") if "pooler" in m["metadata"]["name"]]
        lines = [line for m in files for text in m["data"].values() for line in text.splitlines()]
        return next((line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == key), None)

    return look


def patroni(found: ClusterObjects) -> Object:
    """The members' shared configuration."""
    store = found.cluster.namespace_client.get("configmap", "orders-config")
    return json.loads(store["metadata"]["annotations"]["config"])


def _declared_slots(found: ClusterObjects) -> list[str]:
    return sorted(found.cluster.sql("SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ '^own'").split())


def _lines(found: ClusterObjects) -> list[str]:
    rules = found.cluster.sql("SELECT array_to_string(user_name, ',') FROM pg_hba_file_rules")
    return [name for name in ("guest_one", "guest_two") if name in rules.split()]


def _clear_text(found: ClusterObjects) -> bool:
    rules = "SELECT count(*) > 0 FROM pg_hba_file_rules WHERE type = 'host' AND auth_method <> 'reject'"
    return found.cluster.sql(rules) == "t"


def _superuser(found: ClusterObjects) -> bool:
    """Whether it comes in by the network."""
    rules = "SELECT count(*) > 0 FROM pg_hba_file_rules WHERE 'postgres' = ANY(user_name) AND type = 'hostssl'"
    return found.cluster.sql(rules) == "t"


def _shared_memory(found: ClusterObjects) -> tuple[str, str]:
    """As it is declared, and as the primary has it."""
    declared = next(v["emptyDir"]["sizeLimit"] for v in found.pod["volumes"] if v["name"] == "shm")
    mounted = found.cluster.execute(found.cluster.primary, "df", "-m", "--output=size", "/dev/shm").split()[-1]
    return declared, f"{mounted}Mi"


CASES: Mapping[str, FieldCase] = {
    **COMMON,
    **BACKUP_CASES,
    "version": FieldCase(
        "17", None, lambda found: found.cluster.sql("SHOW server_version_num")[:2], ("17", "17", "17")
    ),
    "image": image(POSTGRESQL.reference, OTHER_IMAGE),
    "upgradeImage": FieldCase("example.com/upgrade:one", "example.com/upgrade:two"),  # test_major_upgrade.py
    "postgresql.parameters": FieldCase(
        {"work_mem": "5MB"}, {"work_mem": "6MB"}, shown("work_mem"), ("5MB", "6MB", "4MB")
    ),
    "postgresql.sizing": FieldCase("Defaults", "FromResources", shown("random_page_cost"), ("4", "1.1", "1.1")),
    "postgresql.pgHba": FieldCase(
        ["hostssl all guest_one all scram-sha-256"],
        ["hostssl all guest_two all scram-sha-256"],
        _lines,
        (["guest_one"], ["guest_two"], []),
    ),
    "postgresql.enableSuperuserAccess": FieldCase(True, False, _superuser, (True, False, False)),
    "postgresql.sharedPreloadLibraries": FieldCase(
        ["pg_stat_statements"],
        ["auto_explain", "pg_stat_statements"],
        shown("shared_preload_libraries"),
        ("pg_stat_statements", "auto_explain,pg_stat_statements", ""),
    ),
    "postgresql.synchronous.mode": FieldCase(
        "Priority", "Disabled", lambda found: patroni(found)["synchronous_mode"], (True, False, "quorum")
    ),
    "postgresql.synchronous.standbys": FieldCase(
        1, 2, lambda found: patroni(found)["synchronous_node_count"], (1, 2, 1)
    ),
    "postgresql.synchronous.required": FieldCase(
        True, False, lambda found: patroni(found)["synchronous_mode_strict"], (True, False, False)
    ),
    # One that is declared no more stays.
    "postgresql.replicationSlots": FieldCase(
        [{"name": "own_one"}],
        [{"name": "own_one"}, {"name": "own_two"}],
        _declared_slots,
        (["own_one"], ["own_one", "own_two"], ["own_one", "own_two"]),
    ),
    "storage.size": volume("data", "400Mi", "450Mi"),
    "walStorage.size": volume("wal", "300Mi", "350Mi"),
    **autogrow("walStorage"),
    # Unit tests have old transactions and full volumes.
    **{
        f"healing.{field}": FieldCase(None, None)
        for field in (
            *("inactiveSlots.mode", "stuckReplicas.mode"),
            *("wraparound.mode", "wraparound.endTransactionsAfter"),
        )
    },
    "resources.limits": memory("512Mi", "544Mi", "768Mi"),
    "resources.requests": cpu("96Mi"),
    "shmSize": FieldCase(
        "64Mi",
        "96Mi",
        _shared_memory,
        (("64Mi", "64Mi"), ("96Mi", "96Mi"), ("256Mi", "256Mi")),
    ),
    "tls.required": FieldCase(True, False, _clear_text, (False, True, False)),
    "pooler.replicas": FieldCase(1, 2, lambda f: f.poolers.get("rw", {}).get("spec", {}).get("replicas")),
    "pooler.mode": FieldCase("session", "transaction", pooling("pool_mode")),
    "pooler.readOnly": FieldCase(True, False, lambda found: "ro" in found.poolers, (True, False, False)),
    "pooler.parameters": FieldCase(
        {"default_pool_size": "7"}, {"default_pool_size": "8"}, pooling("default_pool_size"), ("7", "8", None)
    ),
    "pooler.resources.claims": FieldCase(None, None),
    "pooler.resources.limits": FieldCase(
        {"memory": "64Mi"}, {"memory": "80Mi"}, resource("pooler", "limits", "memory"), ("64Mi", "80Mi", None)
    ),
    "pooler.resources.requests": FieldCase(
        {"cpu": "10m"}, {"cpu": "11m"}, resource("pooler", "requests", "cpu"), ("10m", "11m", None)
    ),
    # They exclude postgresql.synchronous.required: see tests/e2e/features/test_read_replicas.py.
    **dict.fromkeys(
        (
            *("tuning.trial.parameter", "tuning.trial.value", "tuning.trial.until"),
            "readReplicas.min",
            "readReplicas.max",
            "readReplicas.target.cpuPercent",
            "readReplicas.target.connections",
            "readReplicas.maxLag",
            "readReplicas.stabilization.scaleOut",
            "readReplicas.stabilization.scaleIn",
        ),
        FieldCase(None, None),
    ),
}
FINAL: Mapping[str, Any] = {
    **COMMON_FINAL,
    "bootstrap.initdb.encoding": "LATIN9",
    "bootstrap.initdb.localeProvider": "libc",
    "bootstrap.initdb.locale": "C",
    "bootstrap.initdb.walSegmentSize": 8,
    "walStorage.storageClass": "limited",
}
_GIVEN = (
    "SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datlocprovider, datcollate, setting "
    "FROM pg_database, pg_settings WHERE datname = 'shop' AND name = 'wal_segment_size'"
)
FIELDS = FieldCases(
    cases=CASES,
    final=FINAL,
    other_image=OTHER_IMAGE,
    sql=("CREATE TABLE made (who text)", "INSERT INTO made SELECT current_user"),
    bootstrap_query=(_GIVEN, f"keeper|LATIN9|c|C|{8 << 20}"),
)
