"""What the API server takes of our kinds and what not: for each rule one object on either side of it."""

from __future__ import annotations

from typing import Any, NamedTuple

Wire = dict[str, Any]


class Case(NamedTuple):
    """``spec`` is taken; with ``change`` merged into it, the object is refused with ``message``."""

    kind: str
    spec: Wire
    change: Wire
    message: str


CLUSTER = "postgresqlclusters"
DATABASE = "databases"
USER = "databaseusers"

_SERVER: Wire = {"host": "db.example.com", "administrator": {"name": "admin"}}
_OWN: Wire = {"engine": "postgresql", "version": "17"}
_ELSEWHERE: Wire = {"engine": "postgresql", "serverRef": _SERVER}
_ON_CLUSTER: Wire = {"clusterRef": {"name": "shop"}}


def _synchronous(mode: str | None, standbys: int = 1) -> Wire:
    return {"postgresql": {"synchronous": {"standbys": standbys, **({"mode": mode} if mode else {})}}}


def _grant(**fields: Any) -> Wire:
    return {"user": "u", "grants": [{"database": "shop", "privileges": ["SELECT"], **fields}]}


def _on_mysql(**fields: Any) -> Wire:
    return {**_grant(**fields), "engine": "mysql", "serverRef": _SERVER}


_TABLES: Wire = {"schema": "public", "tables": ["*"]}

CREATED = {
    "name-of-a-secret": Case(
        DATABASE,
        _ELSEWHERE,
        {"serverRef": {**_SERVER, "administrator": {"name": "platform/admin"}}},
        "administrator.name in body should match",
    ),
    "name-of-a-service": Case(
        DATABASE,
        {**_ELSEWHERE, "serverRef": {"service": {"name": "1db"}, "administrator": {"name": "admin.eu-1"}}},
        {"serverRef": {"service": {"name": "db.platform"}, "administrator": {"name": "admin.eu-1"}}},
        "service.name in body should match",
    ),
    "name-of-a-cluster": Case(
        USER, {**_ON_CLUSTER, "user": "clerk"}, {"clusterRef": {"name": "platform/main"}}, "should match"
    ),
    "name-of-a-namespace": Case(
        USER, {**_ON_CLUSTER, "user": "clerk"}, {"clusterRef": {"name": "shop", "namespace": "a.b"}}, "should match"
    ),
    "letters-of-names": Case(
        DATABASE, {**_OWN, "databaseName": "заказы 😀"}, {"databaseName": "a\0"}, "should match"
    ),
    "letters-in-grants": Case(
        USER,
        {**_ON_CLUSTER, "user": "o\"`';--", "grants": [{"database": "o'shop", "privileges": ["ALL"]}]},
        {"grants": [{"database": "shop\u0085", "privileges": ["ALL"]}]},
        "should match",
    ),
    "everybodys-namespace": Case(
        CLUSTER, {"allowedNamespaces": ["*", "shop-1"]}, {"allowedNamespaces": ["*shop"]}, "should match"
    ),
    "mode-needs-replica": Case(
        CLUSTER, {"instances": 2, **_synchronous("Priority")}, {"instances": 1}, "needs a rep"
    ),
    "off-alone": Case(CLUSTER, {"instances": 1, **_synchronous("Off", 3)}, {"instances": 0}, "greater than or equal"),
    "standbys": Case(
        CLUSTER, {"instances": 3, **_synchronous(None, 2)}, _synchronous(None, 3), "less than instances"
    ),
    "builtin-locale": Case(
        CLUSTER,
        {"bootstrap": {"initdb": {"localeProvider": "builtin"}}},
        {"version": "15"},
        "builtin needs version 17",
    ),
    "initial-database": Case(
        CLUSTER,
        {"bootstrap": {"initdb": {"database": "shop", "owner": "keeper"}}},
        {"bootstrap": {"initdb": {"database": "postgres", "owner": "keeper"}}},
        "keeps this database",
    ),
    "initial-owner": Case(
        CLUSTER,
        {"bootstrap": {"initdb": {"owner": "keeper"}}},
        {"bootstrap": {"initdb": {"owner": "pg_monitor"}}},
        "keeps this role",
    ),
    "initial-owner-by-default": Case(
        CLUSTER,
        {"bootstrap": {"initdb": {"database": "pg_shop", "owner": "keeper"}}},
        {"bootstrap": {"initdb": {"database": "pg_shop", "owner": None}}},
        "keeps the role of the database's name",
    ),
    "segments": Case(
        CLUSTER,
        {"bootstrap": {"initdb": {"walSegmentSize": 64}}},
        {"bootstrap": {"initdb": {"walSegmentSize": 65}}},
        "power of 2",
    ),
    "parameter-names": Case(
        CLUSTER,
        {"postgresql": {"parameters": {"auto_explain.log_min_duration": "1s"}}},
        {"postgresql": {"parameters": {"Work-Mem": "1MB"}}},
        "lower-case letters",
    ),
    "parameter-dots": Case(
        CLUSTER,
        {"postgresql": {"parameters": {"_rum.fuzzy_limit2": "1"}}},
        {"postgresql": {"parameters": {"rum.fuzzy.limit": "1"}}},
        "at most one '.'",
    ),
    "parameter-ends": Case(
        CLUSTER,
        {"postgresql": {"parameters": {"rum.f": "1"}}},
        {"postgresql": {"parameters": {"rum.": "1"}}},
        "at most one '.'",
    ),
    "parameter-lines": Case(
        CLUSTER,
        {"postgresql": {"parameters": {"search_path": "a, \\r\\n"}}},
        {"postgresql": {"parameters": {"search_path": "a, b\n"}}},
        "without line breaks",
    ),
    "parameter-zeros": Case(
        CLUSTER,
        {"postgresql": {"parameters": {"search_path": "\\x00"}}},
        {"postgresql": {"parameters": {"search_path": "a\0"}}},
        "without line breaks",
    ),
    "hba-lines": Case(
        CLUSTER,
        {"postgresql": {"pgHba": ["host all all 10.0.0.0/8 md5"]}},
        {"postgresql": {"pgHba": ["host all all 10.0.0.0/8 md5\nhost all all all trust"]}},
        "without line breaks",
    ),
    "libraries": Case(
        CLUSTER,
        {"postgresql": {"sharedPreloadLibraries": ["pg_stat_statements"]}},
        {"postgresql": {"sharedPreloadLibraries": ["../evil"]}},
        "should match",
    ),
    "sizes": Case(CLUSTER, {"storage": {"size": "2Gi"}}, {"storage": {"size": "0"}}, "must be more than 0"),
    "shm": Case(CLUSTER, {"shmSize": "64Mi"}, {"shmSize": "0"}, "shmSize must be more"),
    "rw-stays": Case(
        CLUSTER,
        {"services": {"ro": {"enabled": False}}},
        {"services": {"rw": {"enabled": False}}},
        "rw is always there",
    ),
    "pooled-replicas": Case(
        CLUSTER,
        {"services": {"ro": {"enabled": False}}, "pooler": {"readOnly": False}},
        {"pooler": {"readOnly": None}},
        "pooler.readOnly needs services.ro",
    ),
    "labels": Case(
        CLUSTER,
        {"podMetadata": {"labels": {"team": "a"}}},
        {"podMetadata": {"labels": {"app.kubernetes.io/name": "a"}}},
        "the operator's",
    ),
    "annotations": Case(
        CLUSTER,
        {"services": {"r": {"annotations": {"team": "a"}}}},
        {"services": {"r": {"annotations": {"databases.steersman.dev/paused": "a"}}}},
        "the operator's",
    ),
    "pooler-parameters": Case(
        CLUSTER,
        {"pooler": {"parameters": {"max_client_conn": "500"}}},
        {"pooler": {"parameters": {"auth_type": "any"}}},
        "parameters that PgBouncer takes",
    ),
    "pooler-numbers": Case(
        CLUSTER,
        {"pooler": {"parameters": {"default_pool_size": "20", "tcp_user_timeout": "0"}}},
        {"pooler": {"parameters": {"default_pool_size": "lots"}}},
        "must be a whole number",
    ),
    "pooler-lines": Case(
        CLUSTER,
        {"pooler": {"parameters": {"max_client_conn": "500"}}},
        {"pooler": {"parameters": {"max_client_conn": "500\nauth_type = any"}}},
        "must be a whole number",
    ),
    "pooler-switches": Case(
        CLUSTER,
        {"pooler": {"parameters": {"log_connections": "1"}}},
        {"pooler": {"parameters": {"log_connections": "yes"}}},
        "must be 0 or 1",
    ),
    "pooler-lists": Case(
        CLUSTER,
        {"pooler": {"parameters": {"ignore_startup_parameters": "extra_float_digits, options"}}},
        {"pooler": {"parameters": {"ignore_startup_parameters": "options\n[databases]"}}},
        "must be names",
    ),
    "one-place": Case(DATABASE, _ON_CLUSTER, {"engine": "postgresql", "serverRef": _SERVER}, "at most one of"),
    "engine-is-needed": Case(DATABASE, _ELSEWHERE, {"engine": None}, "engine is needed"),
    "engine-of-a-cluster": Case(
        DATABASE, {**_ON_CLUSTER, "engine": "postgresql"}, {"engine": "mysql"}, "the cluster's"
    ),
    "version-is-needed": Case(DATABASE, _OWN, {"version": None}, "version is needed"),
    "version-is-the-servers": Case(DATABASE, _ON_CLUSTER, {"version": "17"}, "version is the server's"),
    "size-is-the-servers": Case(DATABASE, _ELSEWHERE, {"storageSize": "1Gi"}, "storageSize is the server's"),
    "owner-or-username": Case(DATABASE, {**_ON_CLUSTER, "owner": "o"}, {"username": "u"}, "set one of them"),
    "postgresql-only": Case(
        DATABASE,
        {**_ELSEWHERE, "extensions": [{"name": "pg_trgm"}], "schemas": [{"name": "a"}], "connectionLimit": 5},
        {"engine": "mysql"},
        "extensions is PostgreSQL's",
    ),
    "shut-to-all": Case(
        DATABASE, {**_ON_CLUSTER, "connectionLimit": -1}, {"connectionLimit": 0}, "would keep the operator out"
    ),
    "host-or-service": Case(
        DATABASE, _ELSEWHERE, {"serverRef": {"service": {"name": "s"}}}, "exactly one of the fields in [host service]"
    ),
    "one-authority": Case(
        DATABASE,
        {"engine": "mysql", "serverRef": {**_SERVER, "tls": {"ca": {"configMapKeyRef": {"name": "a", "key": "b"}}}}},
        {"serverRef": {"tls": {"ca": {"secretKeyRef": {"name": "a", "key": "b"}}}}},
        "exactly one of the fields in [secretKeyRef configMapKeyRef]",
    ),
    "user-one-place": Case(
        USER, {"user": "u", **_ON_CLUSTER}, {"serverRef": _SERVER, "engine": "mysql"}, "at most one of"
    ),
    "user-engine-of-a-cluster": Case(
        USER, {"user": "u", **_ON_CLUSTER}, {"engine": "postgresql"}, "not for clusterRef"
    ),
    "user-engine-by-label": Case(
        USER, {"user": "u", "engine": "mysql", "limits": {"queries": 1}}, {"createDatabase": True}, "are PostgreSQL's"
    ),
    "user-engine": Case(USER, {"user": "u", **_ELSEWHERE}, {"engine": None}, "engine is needed"),
    "rotation-every": Case(
        USER, {"user": "u", "rotation": {"every": "5m", "overlap": "1m"}}, {"rotation": {"every": "4m"}}, "5m or more"
    ),
    "rotation-overlap": Case(
        USER, {"user": "u", "rotation": {"every": "2h"}}, {"rotation": {"overlap": "2h"}}, "shorter than every"
    ),
    "rotation-or-password": Case(
        USER,
        {"user": "u", "rotation": {"every": "720h"}},
        {"password": {"name": "s", "key": "k"}},
        "at most one of the fields in [password rotation]",
    ),
    "rotation-replication": Case(
        USER, {"user": "u", "rotation": {"every": "720h"}}, {"replication": True}, "cannot be had with rotation"
    ),
    "rotation-login": Case(USER, {"user": "u", "rotation": {"every": "720h"}}, {"login": False}, "users that log in"),
    "attributes-of-mysql": Case(
        USER, {"user": "u", "engine": "mysql", "serverRef": _SERVER}, {"createDatabase": True}, "are PostgreSQL's"
    ),
    "grant-on-database": Case(USER, _grant(privileges=["CONNECT"]), _grant(), "on a database of PostgreSQL are"),
    "grant-on-schema": Case(
        USER, _grant(schema="public", privileges=["USAGE"]), _grant(schema="public"), "a schema are USAGE, CREATE"
    ),
    "grant-on-tables": Case(USER, _grant(**_TABLES), _grant(tables=["*"]), "are in a schema"),
    "grant-on-sequences": Case(
        USER,
        _grant(schema="public", sequences=["s"]),
        _grant(schema="public", sequences=["s"], privileges=["DELETE"]),
        "sequences are USAGE, SELECT, UPDATE",
    ),
    "grant-on-functions": Case(
        USER,
        _grant(schema="public", functions=["f(integer)"], privileges=["EXECUTE"]),
        _grant(schema="public", functions=["f(integer)"]),
        "functions are EXECUTE",
    ),
    "grant-on-one-thing": Case(
        USER, _grant(**_TABLES), _grant(**_TABLES, sequences=["*"]), "at most one of the fields in [tables"
    ),
    "sequences-in-a-schema": Case(
        USER, _grant(schema="public", sequences=["*"]), _grant(sequences=["*"]), "sequences are in a schema"
    ),
    "grant-of-the-future": Case(
        USER,
        _grant(**_TABLES, future=True),
        _grant(schema="public", tables=["t"], future=True),
        "for all of a schema",
    ),
    "grant-created-by": Case(
        USER,
        _grant(**_TABLES, future=True, createdBy=["o"]),
        _grant(**_TABLES, createdBy=["o"]),
        "set future",
    ),
    "grants-of-mysql": Case(USER, _on_mysql(tables=["t"]), _on_mysql(**_TABLES), "on a database or its tables"),
}

UPDATED = {
    "cluster-version": Case(CLUSTER, {"version": "17"}, {"version": "15"}, "cannot be lowered"),
    "cluster-bootstrap": Case(
        CLUSTER, {"bootstrap": {"initdb": {}}}, {"bootstrap": {"initdb": {"owner": "o"}}}, "immutable"
    ),
    "cluster-bootstrap-added": Case(CLUSTER, {}, {"bootstrap": {"initdb": {}}}, "immutable"),
    "volume": Case(CLUSTER, {"storage": {"size": "2Gi"}}, {"storage": {"size": "1Gi"}}, "never shrink"),
    "class": Case(CLUSTER, {"storage": {"storageClass": "fast"}}, {"storage": {"storageClass": "slow"}}, "immutable"),
    "wal-volume": Case(CLUSTER, {}, {"walStorage": {"size": "1Gi"}}, "neither added nor removed"),
    "cluster-ref": Case(DATABASE, _ON_CLUSTER, {"clusterRef": {"name": "other"}}, "immutable"),
    "cluster-ref-given": Case(DATABASE, _OWN, {"version": None, **_ON_CLUSTER}, "immutable"),
    "server-host": Case(
        DATABASE, _ELSEWHERE, {"serverRef": {"host": "other"}}, "host, service and port are immutable"
    ),
    "server-port": Case(
        USER, {"user": "u", **_ELSEWHERE}, {"serverRef": {"port": 1}}, "service and port are immutable"
    ),
    "server-given": Case(
        DATABASE, _OWN, {"version": None, "serverRef": _SERVER}, "serverRef is neither given nor taken"
    ),
    "encoding": Case(DATABASE, {**_ON_CLUSTER, "encoding": "UTF8"}, {"encoding": "LATIN1"}, "immutable"),
    "encoding-given": Case(DATABASE, _ON_CLUSTER, {"collation": "C"}, "immutable"),
    "user": Case(USER, {"user": "u"}, {"user": "v"}, "immutable"),
    "secret-name": Case(USER, {"user": "u"}, {"secretName": "v"}, "immutable"),
}

PERMITTED = {
    "administrator": Case(DATABASE, _ELSEWHERE, {"serverRef": {"administrator": {"name": "other"}}}, ""),
    "tls": Case(USER, {"user": "u", **_ELSEWHERE}, {"serverRef": {"tls": {"mode": "Require"}}}, ""),
    "password": Case(USER, {"user": "u"}, {"password": {"name": "a", "key": "b"}}, ""),
    "cluster-version-raised": Case(CLUSTER, {"version": "15"}, {"version": "17"}, ""),
}
"""Changes that are no change of the server: here the second object is taken, too."""
