"""What the API server takes of our kinds and what not: for each rule one object on either side of it."""

from __future__ import annotations

from typing import Any, NamedTuple

Wire = dict[str, Any]


class SchemaCase(NamedTuple):
    """``spec`` is taken; with ``change`` merged into it, the object is refused with ``message``."""

    kind: str
    spec: Wire
    change: Wire
    message: str


CLUSTER = "postgresqlclusters"
DATABASE = "databases"
USER = "databaseusers"
MYSQL = "mysqlclusters"
STORE = "backupstores"
BACKUP = "backups"
RESTORE = "restores"

_SERVER: Wire = {"host": "db.example.com", "administrator": {"name": "admin"}}
_DEDICATED: Wire = {"engine": "postgresql", "version": "17"}
_ON_SERVER_REF: Wire = {"engine": "postgresql", "serverRef": _SERVER}
_ON_CLUSTER: Wire = {"clusterRef": {"name": "shop"}}

_ALLOWED: Wire = {"cpu": "1", "memory": "1Gi"}


def _synchronous(mode: str | None, standbys: int = 1) -> Wire:
    return {"postgresql": {"synchronous": {"standbys": standbys, **({"mode": mode} if mode else {})}}}


def _read_replicas(**settings: Any) -> Wire:
    return {"readReplicas": {"target": {"connections": 10}, **settings}}


def _slots(*slots: Wire) -> Wire:
    return {"postgresql": {"replicationSlots": list(slots)}}


def _grant(**fields: Any) -> Wire:
    return {"user": "u", "grants": [{"database": "shop", "privileges": ["SELECT"], **fields}]}


def _on_mysql(**fields: Any) -> Wire:
    return {**_grant(**fields), "engine": "mysql", "serverRef": _SERVER}


_LOGICAL_SLOT: Wire = {"name": "a", "plugin": "pgoutput", "database": "shop"}
_BACKUP: Wire = {"storeRef": {"name": "archive"}}
_STORE: Wire = {"s3": {"bucket": "backups"}, "credentials": {"secretRef": {"name": "credentials"}}}


_TABLE: Wire = {"database": "shop", "table": "orders"}
_RESTORE: Wire = {"clusterRef": {"name": "shop"}, "target": {"latest": {}}, "only": [_TABLE]}
_IN_PLACE: Wire = {"clusterRef": {"name": "shop"}, "target": {"latest": {}}}
_UNDO_ON_MYSQL: Wire = {"clusterRef": {"name": "stock", "kind": "MySQLCluster"}, "undo": {"name": "back"}}
_RESTORE_ON_MYSQL: Wire = {**_RESTORE, "clusterRef": {"name": "stock", "kind": "MySQLCluster"}}


def _backup(**settings: Any) -> Wire:
    return {"backup": {**_BACKUP, **settings}}


def _schedule(**schedule: Any) -> Wire:
    return _backup(schedules=[{"name": "daily", "schedule": "30 2 * * *", **schedule}])


def _window(**window: Any) -> Wire:
    return {"maintenance": {"windows": [{"start": "02:00", "duration": "2h", **window}]}}


def _trial(parameter: str, value: str) -> Wire:
    return {"tuning": {"trial": {"parameter": parameter, "value": value, "until": "2030-01-01T00:00:00Z"}}}


def _recovery(**source: Any) -> Wire:
    return {"bootstrap": {"recovery": source}}


def _import(**source: Any) -> Wire:
    return {"bootstrap": {"import": {"host": "old.example.com", "credentials": {"name": "reader"}, **source}}}


_TABLES: Wire = {"schema": "public", "tables": ["*"]}

CREATED = {
    "name-of-a-secret": SchemaCase(
        DATABASE,
        _ON_SERVER_REF,
        {"serverRef": {**_SERVER, "administrator": {"name": "platform/admin"}}},
        "administrator.name in body should match",
    ),
    "name-of-a-service": SchemaCase(
        DATABASE,
        {**_ON_SERVER_REF, "serverRef": {"service": {"name": "1db"}, "administrator": {"name": "admin.eu-1"}}},
        {"serverRef": {"service": {"name": "db.platform"}, "administrator": {"name": "admin.eu-1"}}},
        "service.name in body should match",
    ),
    "name-of-a-cluster": SchemaCase(
        USER, {**_ON_CLUSTER, "user": "clerk"}, {"clusterRef": {"name": "platform/main"}}, "should match"
    ),
    "name-of-a-namespace": SchemaCase(
        USER, {**_ON_CLUSTER, "user": "clerk"}, {"clusterRef": {"name": "shop", "namespace": "a.b"}}, "should match"
    ),
    "letters-of-names": SchemaCase(
        DATABASE, {**_DEDICATED, "databaseName": "заказы 😀"}, {"databaseName": "a\0"}, "should match"
    ),
    "letters-in-grants": SchemaCase(
        USER,
        {**_ON_CLUSTER, "user": "o\"`';--", "grants": [{"database": "o'shop", "privileges": ["ALL"]}]},
        {"grants": [{"database": "shop\u0085", "privileges": ["ALL"]}]},
        "should match",
    ),
    "everybodys-namespace": SchemaCase(
        CLUSTER, {"allowedNamespaces": ["*", "shop-1"]}, {"allowedNamespaces": ["*shop"]}, "should match"
    ),
    "mode-needs-replica": SchemaCase(
        CLUSTER, {"instances": 2, **_synchronous("Priority")}, {"instances": 1}, "needs a rep"
    ),
    "off-alone": SchemaCase(
        CLUSTER, {"instances": 1, **_synchronous("Disabled", 3)}, {"instances": 0}, "greater than or equal"
    ),
    "standbys": SchemaCase(
        CLUSTER, {"instances": 3, **_synchronous(None, 2)}, _synchronous(None, 3), "less than instances"
    ),
    "builtin-locale": SchemaCase(
        CLUSTER,
        {"bootstrap": {"initdb": {"localeProvider": "builtin"}}},
        {"version": "15"},
        "builtin needs version 17",
    ),
    "initial-database": SchemaCase(
        CLUSTER,
        {"bootstrap": {"initdb": {"database": "shop", "owner": "keeper"}}},
        {"bootstrap": {"initdb": {"database": "postgres", "owner": "keeper"}}},
        "reserves this database",
    ),
    "initial-owner": SchemaCase(
        CLUSTER,
        {"bootstrap": {"initdb": {"owner": "keeper"}}},
        {"bootstrap": {"initdb": {"owner": "pg_monitor"}}},
        "name is reserved",
    ),
    "initial-owner-by-default": SchemaCase(
        CLUSTER,
        {"bootstrap": {"initdb": {"database": "pg_shop", "owner": "keeper"}}},
        {"bootstrap": {"initdb": {"database": "pg_shop", "owner": None}}},
        "the default owner",
    ),
    "segments": SchemaCase(
        CLUSTER,
        {"bootstrap": {"initdb": {"walSegmentSize": 64}}},
        {"bootstrap": {"initdb": {"walSegmentSize": 65}}},
        "power of 2",
    ),
    "parameter-names": SchemaCase(
        CLUSTER,
        {"postgresql": {"parameters": {"auto_explain.log_min_duration": "1s"}}},
        {"postgresql": {"parameters": {"Work-Mem": "1MB"}}},
        "lower-case letters",
    ),
    "parameter-dots": SchemaCase(
        CLUSTER,
        {"postgresql": {"parameters": {"_rum.fuzzy_limit2": "1"}}},
        {"postgresql": {"parameters": {"rum.fuzzy.limit": "1"}}},
        "at most one '.'",
    ),
    "parameter-ends": SchemaCase(
        CLUSTER,
        {"postgresql": {"parameters": {"rum.f": "1"}}},
        {"postgresql": {"parameters": {"rum.": "1"}}},
        "at most one '.'",
    ),
    "parameter-lines": SchemaCase(
        CLUSTER,
        {"postgresql": {"parameters": {"search_path": "a, \\r\\n"}}},
        {"postgresql": {"parameters": {"search_path": "a, b\n"}}},
        "cannot contain line breaks",
    ),
    "parameter-zeros": SchemaCase(
        CLUSTER,
        {"postgresql": {"parameters": {"search_path": "\\x00"}}},
        {"postgresql": {"parameters": {"search_path": "a\0"}}},
        "cannot contain line breaks",
    ),
    "hba-lines": SchemaCase(
        CLUSTER,
        {"postgresql": {"pgHba": ["host all all 10.0.0.0/8 md5"]}},
        {"postgresql": {"pgHba": ["host all all 10.0.0.0/8 md5\nhost all all all trust"]}},
        "cannot contain line breaks",
    ),
    "libraries": SchemaCase(
        CLUSTER,
        {"postgresql": {"sharedPreloadLibraries": ["pg_stat_statements"]}},
        {"postgresql": {"sharedPreloadLibraries": ["../evil"]}},
        "should match",
    ),
    "sizes": SchemaCase(CLUSTER, {"storage": {"size": "2Gi"}}, {"storage": {"size": "0"}}, "must be greater than 0"),
    "tuning-size": SchemaCase(CLUSTER, _trial("work_mem", "64MB"), _trial("work_mem", "64"), "such as 64MB"),
    "tuning-number": SchemaCase(
        CLUSTER,
        _trial("bgwriter_lru_maxpages", "200"),
        _trial("bgwriter_lru_maxpages", "1MB"),
        "the value is a number",
    ),
    "autogrow-maximum": SchemaCase(
        CLUSTER,
        {"storage": {"size": "2Gi", "autogrow": {"maxSize": "2Gi"}}},
        {"storage": {"size": "2Gi", "autogrow": {"maxSize": "1Gi"}}},
        "maxSize must be at least size",
    ),
    "autogrow-wal": SchemaCase(
        CLUSTER,
        {"walStorage": {"size": "2Gi", "autogrow": {"maxSize": "2048Mi"}}},
        {"walStorage": {"size": "2Gi", "autogrow": {"maxSize": "2047Mi"}}},
        "maxSize must be at least size",
    ),
    "autogrow-percent": SchemaCase(
        CLUSTER,
        {"storage": {"autogrow": {"maxSize": "2Gi", "atPercent": 90}}},
        {"storage": {"autogrow": {"maxSize": "2Gi", "atPercent": 91}}},
        "should be less than or equal to 90",
    ),
    "autogrow-forecast": SchemaCase(
        CLUSTER,
        {"storage": {"autogrow": {"maxSize": "2Gi", "forecast": "1h"}}},
        {"storage": {"autogrow": {"maxSize": "2Gi", "forecast": "0s"}}},
        "must be from 1h to 2160h",
    ),
    "autogrow-cooldown": SchemaCase(
        CLUSTER,
        {"storage": {"autogrow": {"maxSize": "2Gi", "cooldown": "0s"}}},
        {"storage": {"autogrow": {"maxSize": "2Gi", "cooldown": "-1h"}}},
        "must be from 0s to 168h",
    ),
    "autogrow-step": SchemaCase(
        CLUSTER,
        {"storage": {"autogrow": {"maxSize": "2Gi", "minStep": "1"}}},
        {"storage": {"autogrow": {"maxSize": "2Gi", "minStep": "0"}}},
        "must be greater than 0",
    ),
    "vertical-scaling-bounds": SchemaCase(
        CLUSTER,
        {"verticalScaling": {"minAllowed": {"cpu": "500m"}, "maxAllowed": {"cpu": "0.5"}}},
        {"verticalScaling": {"maxAllowed": {"cpu": "499m"}}},
        "maxAllowed must be at least minAllowed",
    ),
    "vertical-scaling-memory": SchemaCase(
        MYSQL,
        {"verticalScaling": {"minAllowed": {"memory": "1Gi"}, "maxAllowed": {"memory": "1024Mi"}}},
        {"verticalScaling": {"minAllowed": {"memory": "2Gi"}}},
        "maxAllowed must be at least minAllowed",
    ),
    "vertical-scaling-automatic": SchemaCase(
        CLUSTER,
        {"verticalScaling": {"mode": "Automatic", "minAllowed": _ALLOWED, "maxAllowed": _ALLOWED}},
        {"verticalScaling": {"maxAllowed": {"memory": None}}},
        "Automatic needs cpu and memory in minAllowed and maxAllowed",
    ),
    "vertical-scaling-amount": SchemaCase(
        CLUSTER,
        {"verticalScaling": {"maxAllowed": {"cpu": "1m"}}},
        {"verticalScaling": {"maxAllowed": {"cpu": "0"}}},
        "the amount must be greater than 0",
    ),
    "slow-statements": SchemaCase(
        CLUSTER,
        {"monitoring": {"slowStatementThreshold": "1h"}},
        {"monitoring": {"slowStatementThreshold": "61m"}},
        "must be from 1ms to 1h",
    ),
    "healing-transactions": SchemaCase(
        CLUSTER,
        {"healing": {"wraparound": {"endTransactionsAfter": "10m"}}},
        {"healing": {"wraparound": {"endTransactionsAfter": "9m"}}},
        "must be from 10m to 720h",
    ),
    "shm": SchemaCase(CLUSTER, {"shmSize": "64Mi"}, {"shmSize": "0"}, "shmSize must be greater"),
    "rw-stays": SchemaCase(
        CLUSTER,
        {"services": {"ro": {"enabled": False}}},
        {"services": {"rw": {"enabled": False}}},
        "rw cannot be disabled",
    ),
    "pooled-replicas": SchemaCase(
        CLUSTER,
        {"services": {"ro": {"enabled": False}}, "pooler": {"readOnly": False}},
        {"pooler": {"readOnly": None}},
        "pooler.readOnly needs services.ro",
    ),
    "read-replicas-at-most": SchemaCase(
        CLUSTER,
        {"instances": 3, **_read_replicas(min=1, max=6)},
        {"instances": 4},
        "at most 9 together",
    ),
    "read-replicas-durable": SchemaCase(
        CLUSTER,
        _read_replicas(min=1),
        {"postgresql": {"synchronous": {"required": True}}},
        "cannot be combined with postgresql.synchronous.required",
    ),
    "read-replicas-range": SchemaCase(
        CLUSTER, _read_replicas(min=2, max=2), _read_replicas(max=1), "max must be at least min"
    ),
    "read-replicas-target": SchemaCase(
        CLUSTER,
        _read_replicas(min=1, max=2),
        {"readReplicas": {"target": None}},
        "a range from min to max needs a target",
    ),
    "read-replicas-lag": SchemaCase(
        CLUSTER, _read_replicas(maxLag="10s"), _read_replicas(maxLag="9s"), "must be from 10s to 24h"
    ),
    "slot-kind": SchemaCase(
        CLUSTER, _slots(_LOGICAL_SLOT, {"name": "b"}), _slots({"name": "a", "plugin": "pgoutput"}), "set both"
    ),
    "slot-of-operator": SchemaCase(
        CLUSTER, _slots({"name": "a_0_1"}), _slots({"name": "steersman_read_0"}), "cannot start with steersman_"
    ),
    "slot-of-instance": SchemaCase(
        CLUSTER, _slots({"name": "orders_0"}), _slots({"name": "orders_2_0"}), "as those of instances"
    ),
    "slot-wal-level": SchemaCase(
        CLUSTER,
        {"postgresql": {"replicationSlots": [{"name": "a"}], "parameters": {"wal_level": "replica"}}},
        _slots(_LOGICAL_SLOT),
        "need wal_level logical",
    ),
    "labels": SchemaCase(
        CLUSTER,
        {"podMetadata": {"labels": {"team": "a"}}},
        {"podMetadata": {"labels": {"app.kubernetes.io/name": "a"}}},
        "reserved for the operator",
    ),
    "annotations": SchemaCase(
        CLUSTER,
        {"services": {"r": {"annotations": {"team": "a"}}}},
        {"services": {"r": {"annotations": {"databases.steersman.dev/paused": "a"}}}},
        "reserved for the operator",
    ),
    "pooler-parameters": SchemaCase(
        CLUSTER,
        {"pooler": {"parameters": {"max_client_conn": "500"}}},
        {"pooler": {"parameters": {"auth_type": "any"}}},
        "parameter of PgBouncer",
    ),
    "pooler-numbers": SchemaCase(
        CLUSTER,
        {"pooler": {"parameters": {"default_pool_size": "20", "tcp_user_timeout": "0"}}},
        {"pooler": {"parameters": {"default_pool_size": "lots"}}},
        "must be a whole number",
    ),
    "pooler-lines": SchemaCase(
        CLUSTER,
        {"pooler": {"parameters": {"max_client_conn": "500"}}},
        {"pooler": {"parameters": {"max_client_conn": "500\nauth_type = any"}}},
        "must be a whole number",
    ),
    "pooler-switches": SchemaCase(
        CLUSTER,
        {"pooler": {"parameters": {"log_connections": "1"}}},
        {"pooler": {"parameters": {"log_connections": "yes"}}},
        "must be 0 or 1",
    ),
    "pooler-lists": SchemaCase(
        CLUSTER,
        {"pooler": {"parameters": {"ignore_startup_parameters": "extra_float_digits, options"}}},
        {"pooler": {"parameters": {"ignore_startup_parameters": "options\n[databases]"}}},
        "must be names",
    ),
    "one-place": SchemaCase(DATABASE, _ON_CLUSTER, {"engine": "postgresql", "serverRef": _SERVER}, "at most one of"),
    "engine-is-needed": SchemaCase(DATABASE, _ON_SERVER_REF, {"engine": None}, "engine is required"),
    "engine-of-a-cluster": SchemaCase(
        DATABASE, {**_ON_CLUSTER, "engine": "postgresql"}, {"engine": "mysql"}, "differs from clusterRef.kind"
    ),
    "version-is-needed": SchemaCase(DATABASE, _DEDICATED, {"version": None}, "version is required"),
    "version-is-the-servers": SchemaCase(
        DATABASE, _ON_CLUSTER, {"version": "17"}, "version cannot be set with clusterRef"
    ),
    "size-is-the-servers": SchemaCase(
        DATABASE, _ON_SERVER_REF, {"storageSize": "1Gi"}, "storageSize cannot be set with clusterRef"
    ),
    "owner-or-username": SchemaCase(DATABASE, {**_ON_CLUSTER, "owner": "o"}, {"username": "u"}, "set one of them"),
    "postgresql-only": SchemaCase(
        DATABASE,
        {**_ON_SERVER_REF, "extensions": [{"name": "pg_trgm"}], "schemas": [{"name": "a"}], "connectionLimit": 5},
        {"engine": "mysql"},
        "extensions is supported on PostgreSQL only",
    ),
    "shut-to-all": SchemaCase(
        DATABASE, {**_ON_CLUSTER, "connectionLimit": -1}, {"connectionLimit": 0}, "would block the operator"
    ),
    "host-or-service": SchemaCase(
        DATABASE,
        _ON_SERVER_REF,
        {"serverRef": {"service": {"name": "s"}}},
        "exactly one of the fields in [host service]",
    ),
    "one-authority": SchemaCase(
        DATABASE,
        {"engine": "mysql", "serverRef": {**_SERVER, "tls": {"ca": {"configMapKeyRef": {"name": "a", "key": "b"}}}}},
        {"serverRef": {"tls": {"ca": {"secretKeyRef": {"name": "a", "key": "b"}}}}},
        "exactly one of the fields in [secretKeyRef configMapKeyRef]",
    ),
    "user-one-place": SchemaCase(
        USER, {"user": "u", **_ON_CLUSTER}, {"serverRef": _SERVER, "engine": "mysql"}, "at most one of"
    ),
    "user-engine-of-a-cluster": SchemaCase(
        USER, {"user": "u", **_ON_CLUSTER}, {"engine": "postgresql"}, "cannot be set with clusterRef"
    ),
    "user-engine-by-label": SchemaCase(
        USER,
        {"user": "u", "engine": "mysql", "limits": {"queries": 1}},
        {"createDatabase": True},
        "are supported on PostgreSQL only",
    ),
    "user-engine": SchemaCase(USER, {"user": "u", **_ON_SERVER_REF}, {"engine": None}, "engine is required"),
    "rotation-every": SchemaCase(
        USER, {"user": "u", "rotation": {"every": "5m", "overlap": "1m"}}, {"rotation": {"every": "4m"}}, "5m or more"
    ),
    "rotation-overlap": SchemaCase(
        USER, {"user": "u", "rotation": {"every": "2h"}}, {"rotation": {"overlap": "2h"}}, "shorter than every"
    ),
    "rotation-or-password": SchemaCase(
        USER,
        {"user": "u", "rotation": {"every": "720h"}},
        {"password": {"name": "s", "key": "k"}},
        "at most one of the fields in [password rotation]",
    ),
    "rotation-replication": SchemaCase(
        USER, {"user": "u", "rotation": {"every": "720h"}}, {"replication": True}, "exclude rotation"
    ),
    "rotation-login": SchemaCase(
        USER, {"user": "u", "rotation": {"every": "720h"}}, {"login": False}, "rotation needs a user with login"
    ),
    "attributes-of-mysql": SchemaCase(
        USER,
        {"user": "u", "engine": "mysql", "serverRef": _SERVER},
        {"createDatabase": True},
        "are supported on PostgreSQL only",
    ),
    "grant-on-database": SchemaCase(USER, _grant(privileges=["CONNECT"]), _grant(), "on a PostgreSQL database are"),
    "grant-on-schema": SchemaCase(
        USER, _grant(schema="public", privileges=["USAGE"]), _grant(schema="public"), "a schema are USAGE, CREATE"
    ),
    "grant-on-tables": SchemaCase(USER, _grant(**_TABLES), _grant(tables=["*"]), "schema is required with tables"),
    "grant-on-sequences": SchemaCase(
        USER,
        _grant(schema="public", sequences=["s"]),
        _grant(schema="public", sequences=["s"], privileges=["DELETE"]),
        "sequences are USAGE, SELECT, UPDATE",
    ),
    "grant-on-functions": SchemaCase(
        USER,
        _grant(schema="public", functions=["f(integer)"], privileges=["EXECUTE"]),
        _grant(schema="public", functions=["f(integer)"]),
        "functions are EXECUTE",
    ),
    "grant-on-one-thing": SchemaCase(
        USER, _grant(**_TABLES), _grant(**_TABLES, sequences=["*"]), "at most one of the fields in [tables"
    ),
    "sequences-in-a-schema": SchemaCase(
        USER, _grant(schema="public", sequences=["*"]), _grant(sequences=["*"]), "schema is required with sequences"
    ),
    "grant-of-the-future": SchemaCase(
        USER,
        _grant(**_TABLES, future=True),
        _grant(schema="public", tables=["t"], future=True),
        "all objects of a schema",
    ),
    "grant-created-by": SchemaCase(
        USER,
        _grant(**_TABLES, future=True, createdBy=["o"]),
        _grant(**_TABLES, createdBy=["o"]),
        "set future",
    ),
    "one-object-store": SchemaCase(
        STORE, _STORE, {"gcs": {"bucket": "backups"}}, "exactly one of the fields in [s3 gcs azure]"
    ),
    "one-kind-of-credentials": SchemaCase(
        STORE, _STORE, {"credentials": {"workloadIdentity": {}}}, "exactly one of the fields in [secretRef workload"
    ),
    "store-endpoint": SchemaCase(
        STORE,
        {**_STORE, "s3": {"bucket": "backups", "endpoint": "https://minio.storage.svc:9000"}},
        {"s3": {"endpoint": "http://minio.storage.svc:9000"}},
        "endpoint must be https",
    ),
    "store-prefix": SchemaCase(
        STORE,
        {**_STORE, "s3": {"bucket": "backups", "prefix": "team-a/databases"}},
        {"s3": {"prefix": "team-a/../b"}},
        "should match",
    ),
    "store-key-without-encryption": SchemaCase(
        STORE,
        {**_STORE, "encryption": {"secretRef": {"name": "key"}}},
        {"encryption": {"mode": "Disabled"}},
        "secretRef needs mode Enabled",
    ),
    "store-lock": SchemaCase(
        STORE, {**_STORE, "immutability": {"days": 30}}, {"immutability": {"days": 0}}, "greater than or equal"
    ),
    "backup-of-mysql": SchemaCase(
        BACKUP,
        {"clusterRef": {"kind": "MySQLCluster", "name": "orders"}},
        {"type": "Incremental"},
        "type must be Full on MySQL",
    ),
    "window-start": SchemaCase(CLUSTER, _window(start="23:59"), _window(start="24:00"), "hours and minutes"),
    "window-duration": SchemaCase(MYSQL, _window(duration="24h"), _window(duration="24h1s"), "from 10m to 24h"),
    "window-length": SchemaCase(MYSQL, _window(duration="10m"), _window(duration="9m"), "from 10m to 24h"),
    "window-days": SchemaCase(CLUSTER, _window(days=["Sun"]), _window(days=["Sunday"]), "Unsupported value"),
    "archive-interval": SchemaCase(
        CLUSTER, _backup(archive={"interval": "1h"}), _backup(archive={"interval": "1h1s"}), "from 1s to 1h"
    ),
    "retention-window": SchemaCase(
        CLUSTER, _backup(retention={"window": "2w"}), _backup(retention={"window": "1m"}), "hours, days or weeks"
    ),
    "retention-after-deletion": SchemaCase(
        CLUSTER,
        _backup(retentionAfterDeletion="Forever"),
        _backup(retentionAfterDeletion="never"),
        "hours, days or weeks",
    ),
    "schedules-of-mysql": SchemaCase(
        MYSQL, _schedule(type="Full"), _schedule(type="Differential"), "type must be Full on MySQL"
    ),
    "schedules-of-a-database": SchemaCase(
        DATABASE, {**_DEDICATED, **_schedule(type="Incremental")}, {"engine": "mysql"}, "type must be Full on MySQL"
    ),
    "initdb-or-recovery": SchemaCase(
        CLUSTER,
        _recovery(backup={"name": "nightly"}),
        {"bootstrap": {"initdb": {}}},
        "exactly one of the fields in [initdb recovery]",
    ),
    "recovery-source": SchemaCase(
        CLUSTER,
        _recovery(store={"storeRef": {"name": "archive"}, "path": "shop/postgresqlcluster.orders/0123abcd"}),
        _recovery(cluster={"name": "orders"}),
        "exactly one of the fields in [backup cluster store]",
    ),
    "recovery-target": SchemaCase(
        CLUSTER,
        _recovery(cluster={"name": "orders"}, target={"lsn": "0/3000028"}),
        _recovery(target={"time": "2026-03-01T12:30:00Z"}),
        "exactly one of the fields in [latest time lsn name gtid]",
    ),
    "recovery-target-of-postgresql": SchemaCase(
        CLUSTER,
        _recovery(cluster={"name": "orders"}, target={"name": "before-migration"}),
        _recovery(target={"name": None, "gtid": {"before": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}),
        "target.gtid is not supported on PostgreSQL",
    ),
    "recovery-target-of-mysql": SchemaCase(
        MYSQL,
        _recovery(cluster={"name": "orders"}, target={"gtid": {"before": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}),
        _recovery(target={"gtid": None, "lsn": "0/3000028"}),
        "target.lsn is not supported on MySQL",
    ),
    "recovery-gtid": SchemaCase(
        MYSQL,
        _recovery(
            cluster={"name": "orders"},
            target={"gtid": {"through": "3e11fa47-71ca-11e1-9e33-c80aa9429562:billing:23"}},
        ),
        _recovery(target={"gtid": {"before": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}),
        "exactly one of the fields in [before through]",
    ),
    "restore-of-no-source": SchemaCase(RESTORE, _IN_PLACE, {"target": None}, "set target to restore"),
    "restore-of-two-sources": SchemaCase(
        RESTORE, _UNDO_ON_MYSQL, {"target": {"latest": {}}}, "set target to restore"
    ),
    "undo-of-tables": SchemaCase(RESTORE, _UNDO_ON_MYSQL, {"only": [_TABLE]}, "remove only"),
    "restore-in-place-into": SchemaCase(RESTORE, _IN_PLACE, {"into": "other"}, "into has no effect"),
    "restore-in-place-storage": SchemaCase(RESTORE, _IN_PLACE, {"storage": {"size": "5Gi"}}, "storage has no effect"),
    "restore-of-tables-confirmed": SchemaCase(
        RESTORE, _RESTORE, {"confirm": "0123"}, "is for a restore of the whole"
    ),
    "overwrite-keeps-nothing": SchemaCase(
        RESTORE, _IN_PLACE, {"mode": "InPlace", "keepPrevious": "1h"}, "keeps no previous volumes"
    ),
    "overwrite-of-tables": SchemaCase(RESTORE, _RESTORE, {"mode": "InPlace"}, "is for a restore of the whole"),
    "restore-keeps-forever": SchemaCase(RESTORE, _IN_PLACE, {"keepPrevious": "9000h"}, "between 0s and 8760h"),
    "restore-of-one-database": SchemaCase(
        RESTORE, _RESTORE, {"only": [_TABLE, {**_TABLE, "database": "other"}]}, "must name the same database"
    ),
    "restore-of-a-whole-database": SchemaCase(
        RESTORE,
        {**_RESTORE, "only": [{"database": "shop"}]},
        {"only": [{"database": "shop"}, _TABLE]},
        "it must be the only item",
    ),
    "restore-schema": SchemaCase(
        RESTORE,
        {**_RESTORE, "only": [{**_TABLE, "schema": "own"}]},
        {"only": [{"database": "shop", "schema": "own"}]},
        "schema needs table",
    ),
    "restore-into": SchemaCase(RESTORE, {**_RESTORE, "into": "before"}, {"into": "steersman_x"}, "are reserved"),
    "restore-into-another": SchemaCase(
        RESTORE, {**_RESTORE, "into": "before"}, {"into": "shop"}, "into must differ from the present database"
    ),
    "restore-schema-on-mysql": SchemaCase(
        RESTORE, _RESTORE_ON_MYSQL, {"only": [{**_TABLE, "schema": "own"}]}, "MySQL has no schemas in a database"
    ),
    "restore-of-mysql-system": SchemaCase(
        RESTORE, _RESTORE_ON_MYSQL, {"only": [{"database": "mysql"}]}, "system databases are not restored"
    ),
    "restore-of-postgresql-system": SchemaCase(
        RESTORE,
        {**_RESTORE, "only": [{"database": "postgres", "table": "t"}]},
        {"only": [{"database": "postgres"}]},
        "not restored as a whole",
    ),
    "restore-name-on-mysql": SchemaCase(
        RESTORE,
        {**_RESTORE_ON_MYSQL, "target": {"gtid": {"before": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}},
        {"target": {"gtid": None, "name": "before"}},
        "target.lsn and target.name are not supported on MySQL",
    ),
    "restore-gtid-on-postgresql": SchemaCase(
        RESTORE,
        {**_RESTORE, "target": {"lsn": "0/3000028"}},
        {"target": {"lsn": None, "gtid": {"through": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}},
        "target.gtid is not supported on PostgreSQL",
    ),
    "backup-is-the-clusters": SchemaCase(DATABASE, _ON_CLUSTER, _backup(), "backup cannot be set with clusterRef"),
    "backup-of-cluster-or-database": SchemaCase(
        BACKUP,
        {"databaseRef": {"name": "shop"}},
        {"clusterRef": {"name": "shop"}},
        "exactly one of the fields in [clusterRef databaseRef]",
    ),
    "dump-type": SchemaCase(
        BACKUP, {"databaseRef": {"name": "shop"}}, {"type": "Incremental"}, "type must be Full with databaseRef"
    ),
    "dump-deletion": SchemaCase(
        BACKUP, {"databaseRef": {"name": "shop"}}, {"deletionPolicy": "Delete"}, "must be Retain with databaseRef"
    ),
    "dump-schedules": SchemaCase(
        DATABASE, {**_ON_SERVER_REF, **_schedule()}, _schedule(type="Incremental"), "type must be Full with serverRef"
    ),
    "dump-schedules-of-mysql": SchemaCase(
        DATABASE,
        {**_ON_SERVER_REF, "engine": "mysql", **_schedule()},
        _schedule(type="Differential"),
        "type must be Full with serverRef",
    ),
    "restore-of-a-dump": SchemaCase(
        DATABASE,
        {**_ON_CLUSTER, **_recovery(backup={"name": "nightly"})},
        _recovery(backup=None, cluster={"name": "other"}),
        "recovery.cluster cannot be set with clusterRef or serverRef",
    ),
    "restore-target": SchemaCase(
        DATABASE,
        {**_ON_SERVER_REF, **_recovery(backup={"name": "nightly"})},
        _recovery(target={"time": "2026-03-01T12:30:00Z"}),
        "a dump has one moment",
    ),
    "restore-owner": SchemaCase(
        DATABASE,
        {**_ON_CLUSTER, **_recovery(backup={"name": "nightly"})},
        {"owner": "clerk"},
        "owner cannot be set with bootstrap.recovery",
    ),
    "recovery-or-import": SchemaCase(
        DATABASE,
        {**_DEDICATED, **_import()},
        _recovery(backup={"name": "nightly"}),
        "exactly one of the fields in [recovery import]",
    ),
    "import-owner": SchemaCase(
        DATABASE, {**_ON_CLUSTER, **_import()}, {"owner": "clerk"}, "owner cannot be set with bootstrap.import"
    ),
    "import-port": SchemaCase(
        DATABASE, {**_ON_SERVER_REF, **_import(port=5433)}, _import(port=0), "port in body should be greater"
    ),
    "import-credentials": SchemaCase(
        DATABASE,
        {**_ON_CLUSTER, **_import(databaseName="old", tls={"mode": "VerifyCA"})},
        _import(credentials={"name": "platform/reader"}),
        "credentials.name in body should match",
    ),
    "grants-of-mysql": SchemaCase(USER, _on_mysql(tables=["t"]), _on_mysql(**_TABLES), "on a database or its tables"),
}

UPDATED = {
    "cluster-version": SchemaCase(CLUSTER, {"version": "17"}, {"version": "15"}, "cannot be lowered"),
    "cluster-bootstrap": SchemaCase(
        CLUSTER, {"bootstrap": {"initdb": {}}}, {"bootstrap": {"initdb": {"owner": "o"}}}, "immutable"
    ),
    "cluster-bootstrap-added": SchemaCase(CLUSTER, {}, {"bootstrap": {"initdb": {}}}, "immutable"),
    "volume": SchemaCase(CLUSTER, {"storage": {"size": "2Gi"}}, {"storage": {"size": "1Gi"}}, "volumes never shrink"),
    "class": SchemaCase(
        CLUSTER, {"storage": {"storageClass": "fast"}}, {"storage": {"storageClass": "slow"}}, "immutable"
    ),
    "slot-plugin": SchemaCase(
        CLUSTER,
        _slots(_LOGICAL_SLOT),
        _slots({**_LOGICAL_SLOT, "plugin": "test_decoding"}),
        "plugin and database of a slot cannot change",
    ),
    "slot-database": SchemaCase(
        CLUSTER, _slots(_LOGICAL_SLOT), _slots({"name": "a"}), "plugin and database of a slot cannot change"
    ),
    "wal-volume": SchemaCase(CLUSTER, {}, {"walStorage": {"size": "1Gi"}}, "cannot be added or removed"),
    "read-replicas-removed": SchemaCase(
        CLUSTER,
        _read_replicas(min=1),
        {"readReplicas": None, "postgresql": {"synchronous": {"required": True}}},
        "remove the read replicas first",
    ),
    "store-bucket": SchemaCase(STORE, _STORE, {"s3": {"bucket": "others"}}, "bucket is immutable"),
    "store-prefix": SchemaCase(STORE, _STORE, {"s3": {"prefix": "b"}}, "prefix is immutable"),
    "store-kind": SchemaCase(
        STORE, _STORE, {"s3": None, "gcs": {"bucket": "backups"}}, "kind of object store is immutable"
    ),
    "store-encryption": SchemaCase(STORE, _STORE, {"encryption": {"mode": "Disabled"}}, "encryption is immutable"),
    "backup-cluster": SchemaCase(
        BACKUP, {"clusterRef": {"name": "orders"}}, {"clusterRef": {"name": "other"}}, "clusterRef is immutable"
    ),
    "backup-database": SchemaCase(
        BACKUP, {"databaseRef": {"name": "shop"}}, {"databaseRef": {"name": "other"}}, "databaseRef is immutable"
    ),
    "restore-runs-once": SchemaCase(RESTORE, _RESTORE, {"into": "other"}, "create a new Restore"),
    "restore-of-one-moment": SchemaCase(
        RESTORE, _IN_PLACE, {"target": {"time": "2026-05-01T12:00:00Z"}}, "target is immutable"
    ),
    "undo-of-one-restore": SchemaCase(RESTORE, _UNDO_ON_MYSQL, {"undo": {"name": "other"}}, "undo is immutable"),
    "restore-stays-in-place": SchemaCase(RESTORE, _IN_PLACE, {"only": _RESTORE["only"]}, "only is immutable"),
    "backup-source": SchemaCase(
        BACKUP,
        {"databaseRef": {"name": "shop"}},
        {"databaseRef": None, "clusterRef": {"name": "shop"}},
        "databaseRef is neither added nor removed later",
    ),
    "backup-type": SchemaCase(
        BACKUP, {"clusterRef": {"name": "orders"}}, {"type": "Incremental"}, "type is immutable"
    ),
    "cluster-store": SchemaCase(CLUSTER, _backup(), _backup(storeRef={"name": "other"}), "storeRef is immutable"),
    "cluster-ref": SchemaCase(DATABASE, _ON_CLUSTER, {"clusterRef": {"name": "other"}}, "immutable"),
    "cluster-ref-given": SchemaCase(DATABASE, _DEDICATED, {"version": None, **_ON_CLUSTER}, "immutable"),
    "server-host": SchemaCase(
        DATABASE, _ON_SERVER_REF, {"serverRef": {"host": "other"}}, "host, service and port are immutable"
    ),
    "server-port": SchemaCase(
        USER, {"user": "u", **_ON_SERVER_REF}, {"serverRef": {"port": 1}}, "service and port are immutable"
    ),
    "server-given": SchemaCase(
        DATABASE, _DEDICATED, {"version": None, "serverRef": _SERVER}, "serverRef is neither given nor taken"
    ),
    "encoding": SchemaCase(DATABASE, {**_ON_CLUSTER, "encoding": "UTF8"}, {"encoding": "LATIN1"}, "immutable"),
    "encoding-given": SchemaCase(DATABASE, _ON_CLUSTER, {"collation": "C"}, "immutable"),
    "user": SchemaCase(USER, {"user": "u"}, {"user": "v"}, "immutable"),
    "secret-name": SchemaCase(USER, {"user": "u"}, {"secretName": "v"}, "immutable"),
}

PERMITTED = {
    "administrator": SchemaCase(DATABASE, _ON_SERVER_REF, {"serverRef": {"administrator": {"name": "other"}}}, ""),
    "tls": SchemaCase(USER, {"user": "u", **_ON_SERVER_REF}, {"serverRef": {"tls": {"mode": "Require"}}}, ""),
    "password": SchemaCase(USER, {"user": "u"}, {"password": {"name": "a", "key": "b"}}, ""),
    "store-credentials": SchemaCase(
        STORE,
        _STORE,
        {"s3": {"endpoint": "https://minio.storage.svc:9000"}, "credentials": {"secretRef": {"name": "next"}}},
        "",
    ),
    "backup-retention": SchemaCase(
        BACKUP,
        {"clusterRef": {"name": "orders"}},
        {"deletionPolicy": "Delete", "retainUntil": "2027-01-01T00:00:00Z"},
        "",
    ),
    "undo-confirmed": SchemaCase(RESTORE, _UNDO_ON_MYSQL, {"confirm": "0123456789ab"}, ""),
    "restore-confirmed": SchemaCase(RESTORE, _IN_PLACE, {"confirm": "0123456789ab"}, ""),
    "cluster-backup": SchemaCase(CLUSTER, {}, _schedule(type="Incremental"), ""),
    "cluster-version-raised": SchemaCase(CLUSTER, {"version": "15"}, {"version": "17"}, ""),
}
"""Changes that are no change of the server: here the second object is taken, too."""
