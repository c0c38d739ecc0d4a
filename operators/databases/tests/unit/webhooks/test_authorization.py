"""Nobody gets at a Secret through the operator that they may not read themselves: an API server in memory asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from database_support.unit.backup_stores import ARCHIVE, store
from steersman.api.core_v1 import LocalObjectReference
from steersman.client import Client, JsonPatch, MergePatch
from steersman.errors import ConnectionFailed, InternalError, Invalid
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins
from steersman.webhook import AdmissionRequest
from steersman_databases.api import (
    BackupStore,
    Database,
    DatabaseSpec,
    DatabaseStatus,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
)
from steersman_databases.api.backups.backup_common import BackupJobSettings, BackupSettings, StoreReference
from steersman_databases.api.backups.import_source import AccountReference, ImportSettings
from steersman_databases.api.cluster_common import ClusterTls, SecretReference, SqlReferences
from steersman_databases.api.database import DatabaseBootstrap
from steersman_databases.api.database_user import DatabaseUserSpec
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb, PostgreSQLClusterSpec
from steersman_databases.api.references import (
    AdministratorReference,
    CertificateAuthoritySource,
    KeySelector,
    ServerReference,
    ServerTls,
)
from steersman_databases.api.secret_references import ReferencingObject, referenced_secrets
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.main import WEBHOOKS, setup
from steersman_databases.webhooks import setup_webhooks
from steersman_databases.webhooks.authorization import AuthorizationCheck
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.webhooks import serve_webhooks

OPERATOR = "system:serviceaccount:steersman-databases-system:steersman-databases"
KINDS = (PostgreSQLCluster, MySQLCluster, Database, DatabaseUser, BackupStore)
WRITER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "writer"},
    "rules": [{"apiGroups": ["databases.steersman.dev"], "resources": ["*"], "verbs": ["*"]}],
}


def reading(*names: str, namespace: str = "shop") -> dict[str, Any]:
    """A Role that lets get Secrets."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reads-" + "-".join(names), "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": list(names), "verbs": ["get"]}],
    }


class Shop:
    """An API server that asks the operator, which may do what its generated role says."""

    def __init__(self) -> None:
        runtime = virtual_runtime()
        self.server = InMemoryApiServer(runtime)
        for name in ("shop", "servers"):
            self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for kind in KINDS:
            self.server.load(definition(kind))
        # Nobody leads here: every replica answers, those that stand by or end included.
        options = ManagerOptions(webhooks=WEBHOOKS, leader_election=LeaderElection(name="operator", namespace="shop"))
        self.manager = Manager(self.server.as_user(OPERATOR), options, runtime)
        setup_webhooks(self.manager, sql_engine_named)
        self.server.grant(OPERATOR, cluster_role("operator", self.manager.permissions))
        self.root = Client(self.server)

    def serve(self) -> None:
        serve_webhooks(self.server, self.manager)

    def user(self, name: str, *roles: dict[str, Any]) -> Client:
        """A client of somebody who may write our kinds, and what ``roles`` say."""
        self.server.grant(name, WRITER, *roles)
        return Client(self.server.as_user(name))


def server(name: str = "rds", **more: Any) -> ServerReference:
    return ServerReference(host="db.example.com", administrator=AdministratorReference(name=name, **more))


def meta(name: str = "orders") -> ObjectMeta:
    return ObjectMeta(name=name, namespace="shop")


def database(**spec: Any) -> Database:
    fields: dict[str, Any] = {"engine": "postgresql", "server_ref": server(), **spec}
    return Database(metadata=meta(), spec=DatabaseSpec(**fields))


KEY = ObjectKey("shop", "orders")


@virtual_time
async def test_secret_reference_needs_get_permission() -> None:
    shop = Shop()
    shop.serve()
    jane = shop.user("jane")
    with pytest.raises(Invalid) as refused:
        await jane.create(database())
    (cause,) = refused.value.causes
    assert cause.field == "spec.serverRef.administrator"
    assert cause.reason == "FieldValueForbidden"
    assert 'user "jane" may not get Secret rds in namespace shop' in cause.message
    assert "grant get of secrets with resourceNames [rds] by a Role in shop" in cause.message
    assert shop.server.rbac_denials == [], "the operator may ask"
    ada = shop.user("ada", reading("rds"))
    await ada.create(database())


@virtual_time
async def test_only_new_references_are_checked() -> None:
    shop = Shop()
    shop.serve()
    await shop.user("ada", reading("rds")).create(database())
    jane = shop.user("jane", reading("other"))
    await jane.patch(Database, KEY, MergePatch({"spec": {"connectionLimit": 7}}))
    for administrator in ({"name": "third"}, {"passwordKey": "another"}, {"namespace": "stock"}):
        with pytest.raises(Invalid, match="may not get Secret"):
            await jane.patch(Database, KEY, MergePatch({"spec": {"serverRef": {"administrator": administrator}}}))
    with pytest.raises(Invalid, match="may not get Secret rds"):
        await jane.patch(Database, KEY, MergePatch({"spec": {"serverRef": {"tls": {"mode": "Disable"}}}}))
    await jane.patch(Database, KEY, MergePatch({"spec": {"serverRef": {"administrator": {"name": "other"}}}}))


@virtual_time
async def test_reordered_list_is_not_new() -> None:
    shop = Shop()
    shop.serve()
    secrets = [{"name": "a"}, {"name": "b"}]
    cluster = PostgreSQLCluster(
        metadata=meta("main"),
        spec=PostgreSQLClusterSpec(image_pull_secrets=tuple(LocalObjectReference(**s) for s in secrets)),
    )
    await shop.user("ada", reading("a", "b")).create(cluster)
    jane = shop.user("jane")
    patch = MergePatch({"spec": {"imagePullSecrets": secrets[1:]}})
    await jane.patch(PostgreSQLCluster, ObjectKey("shop", "main"), patch)
    with pytest.raises(Invalid, match="may not get Secret c"):
        patch = MergePatch({"spec": {"imagePullSecrets": [{"name": "c"}]}})
        await jane.patch(PostgreSQLCluster, ObjectKey("shop", "main"), patch)


@virtual_time
async def test_own_namespace_is_checked() -> None:
    shop = Shop()
    shop.serve()
    elsewhere = server(namespace="servers")
    with pytest.raises(Invalid, match="namespace servers"):
        await shop.user("jane", reading("rds")).create(database(server_ref=elsewhere))
    await shop.user("ada", reading("rds", namespace="servers")).create(database(server_ref=elsewhere))


@virtual_time
@pytest.mark.parametrize(
    "spec", [PostgreSQLClusterSpec(image="mine:1"), PostgreSQLClusterSpec(upgrade_image="mine:1")]
)
async def test_image_field_needs_pod_create_permission(spec: PostgreSQLClusterSpec) -> None:
    shop = Shop()
    shop.serve()
    cluster = PostgreSQLCluster(metadata=meta("main"), spec=spec)
    with pytest.raises(Invalid, match="may not create pods in namespace shop"):
        await shop.user("jane").create(cluster)
    await shop.user("ada", CREATES_PODS).create(cluster)
    jane = shop.user("jane")
    await jane.patch(PostgreSQLCluster, ObjectKey("shop", "main"), MergePatch({"spec": {"hibernated": True}}))


CREATES_PODS = {
    **reading("x"),
    "metadata": {"name": "pods", "namespace": "shop"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
}


@virtual_time
@pytest.mark.parametrize("kind", [PostgreSQLCluster, MySQLCluster])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"podMetadata": {"labels": {"app": "shop"}}}, "spec.podMetadata.labels[app]"),
        (
            {"podMetadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "backbone"}}},
            "spec.podMetadata.annotations[k8s.v1.cni.cncf.io/networks]",
        ),
        ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName"),
    ],
)
async def test_privileged_pod_fields_need_pod_create_permission(kind: Any, spec: dict[str, Any], field: str) -> None:
    shop = Shop()
    shop.serve()
    jane, ada = shop.user("jane"), shop.user("ada", CREATES_PODS)
    cluster = decode_builtins({"metadata": {"name": "main", "namespace": "shop"}, "spec": spec}, kind)
    with pytest.raises(Invalid) as refused:
        await jane.create(cluster)
    (cause,) = refused.value.causes
    assert (cause.field, cause.reason) == (field, "FieldValueForbidden")
    assert 'user "jane" may not create pods in namespace shop' in cause.message
    assert "or let a permitted user apply it" in cause.message
    await ada.create(cluster)
    main = ObjectKey("shop", "main")
    await jane.patch(kind, main, MergePatch({"spec": {"hibernated": True}}))
    gone = {"podMetadata": None, "priorityClassName": None}
    await jane.patch(kind, main, MergePatch({"spec": gone}))
    with pytest.raises(Invalid, match="may not create pods"):
        await jane.patch(kind, main, MergePatch({"spec": spec}))


@virtual_time
async def test_unavailable_api_rejects_new_allows_rest() -> None:
    shop = Shop()
    shop.serve()
    ada = shop.user("ada", reading("rds"))
    await ada.create(database())
    for webhook in shop.manager.webhooks.admission:
        for path in webhook.paths:
            shop.server.serve_webhook(f"https://{WEBHOOKS.server_names[0]}:443{path}", away)
    with pytest.raises(InternalError, match="failed calling webhook"):
        await ada.patch(Database, KEY, MergePatch({"spec": {"connectionLimit": 7}}))
    jane = shop.user("system:serviceaccount:kube-system:generic-garbage-collector")
    finalizers = {"metadata": {"finalizers": ["databases.steersman.dev/database"], "labels": {"a": "b"}}}
    await jane.patch(Database, KEY, MergePatch(finalizers))
    found = await jane.get(Database, KEY)
    await jane.apply_status(found, DatabaseStatus(phase="Pending"))
    await jane.delete(Database, KEY)
    await jane.patch(Database, KEY, JsonPatch([{"op": "remove", "path": "/metadata/finalizers"}]))
    assert shop.server.read(Database, KEY) is None


async def away(review: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionFailed("connection refused")


@virtual_time
async def test_operator_objects_are_allowed() -> None:
    """With all that the operator's role holds, since it may read Secrets."""
    shop = Shop()
    whole = Manager(shop.server, ManagerOptions(webhooks=WEBHOOKS))
    setup(whole)
    shop.server.grant(OPERATOR, cluster_role("whole", whole.permissions), WRITER)
    shop.serve()
    await Client(shop.server.as_user(OPERATOR)).create(database())


SERVER = ServerReference(
    host="db.example.com",
    administrator=AdministratorReference(name="a"),
    tls=ServerTls(
        ca=CertificateAuthoritySource(secret_key_ref=KeySelector(name="b", key="ca")), client_certificate="c"
    ),
)
IMPORT = ImportSettings(host="old.example.com", credentials=AccountReference(name="d"), tls=SERVER.tls)
EVERYTHING: tuple[ReferencingObject, ...] = (
    PostgreSQLCluster(
        metadata=meta(),
        spec=PostgreSQLClusterSpec(
            tls=ClusterTls(server_secret=SecretReference(name="a")),
            bootstrap=Bootstrap(
                initdb=InitDb(
                    secret=SecretReference(name="b"),
                    post_init_application_sql_refs=SqlReferences(secret_refs=(KeySelector(name="s", key="a.sql"),)),
                )
            ),
            image_pull_secrets=(LocalObjectReference(name="c"),),
        ),
    ),
    database(server_ref=SERVER, bootstrap=DatabaseBootstrap(import_=IMPORT)),
    DatabaseUser(
        metadata=meta(),
        spec=DatabaseUserSpec(
            user="clerk", password=KeySelector(name="d", key="password"), engine="mysql", server_ref=SERVER
        ),
    ),
)
MADE_BY_US = {"DatabaseUser": {"spec.secretName"}}
NAMES = re.compile(r"^(A |The )?([Kk]ey of a )?Secrets? (for|of|that|with)|^(A|The) key of a Secret")


def naming(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The fields below ``path`` that name a Secret, by their own names or by their descriptions."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if "secret" in name.lower() or NAMES.match(field.get("description", "")):
            yield here
        yield from naming(field.get("items", field), here)


@pytest.mark.parametrize("obj", EVERYTHING, ids=lambda obj: type(obj).__name__)
def test_every_secret_field_is_known(obj: ReferencingObject) -> None:
    """By the descriptions of the schema: who adds such a field says so, and fails here until it is asked about."""
    schema: Any = definition(type(obj))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    told = set(naming(schema["properties"]["spec"], "spec"))
    told -= MADE_BY_US.get(type(obj).__name__, set())
    assert told == {named.field.replace("[0]", "") for named in referenced_secrets(obj)}


@virtual_time
async def test_store_needs_get_permission_on_its_secrets() -> None:
    shop = Shop()
    shop.serve()
    jane, writer = shop.user("jane"), shop.user("writer", reading("credentials", "minio-ca"))
    s3 = {"bucket": "backups", "endpoint": "https://s3.example.com", "caSecretRef": {"name": "minio-ca"}}
    with pytest.raises(Invalid) as refused:
        await jane.create(store(s3=s3))
    assert {cause.field for cause in refused.value.causes} == {"spec.credentials.secretRef", "spec.s3.caSecretRef"}
    await writer.create(store(s3=s3))
    # A new endpoint, or another namespace, receives the credentials.
    redirected: tuple[dict[str, Any], ...] = (
        {"s3": {"endpoint": "https://elsewhere.example.com"}},
        {"allowedNamespaces": ["servers"]},
    )
    for spec in redirected:
        with pytest.raises(Invalid, match="may not get Secret credentials"):
            await jane.patch(BackupStore, ARCHIVE, MergePatch({"spec": spec}))
        await writer.patch(BackupStore, ARCHIVE, MergePatch({"spec": spec}))
    await jane.patch(BackupStore, ARCHIVE, MergePatch({"spec": {"immutability": {"days": 7}}}))


@virtual_time
async def test_priority_of_backup_jobs_needs_pod_permission() -> None:
    shop = Shop()
    shop.serve()
    jane = shop.user("jane")
    jobs = BackupJobSettings(priority_class_name="system-node-critical")
    backup = BackupSettings(store_ref=StoreReference(name="archive"), jobs=jobs)
    for obj in (
        PostgreSQLCluster(metadata=meta(), spec=PostgreSQLClusterSpec(backup=backup)),
        database(server_ref=None, version="17", backup=backup),
    ):
        with pytest.raises(Invalid, match="may not create pods") as refused:
            await jane.create(obj)
        assert [cause.field for cause in refused.value.causes] == ["spec.backup.jobs.priorityClassName"]


@virtual_time
async def test_forged_review_of_many_secrets_asks_for_none() -> None:
    """A review does not have to come from the API server, so no schema has limited the list."""
    shop = Shop()
    secrets = tuple(LocalObjectReference(name=f"pull-{number}") for number in range(1000))
    cluster = PostgreSQLCluster(metadata=meta(), spec=PostgreSQLClusterSpec(image_pull_secrets=secrets))
    check = AuthorizationCheck(Client(shop.server.as_user("nobody")), virtual_runtime().clock)
    (cause,) = await check.check(cluster, None, AdmissionRequest(operation="CREATE", namespace="shop"))
    assert shop.server.rbac_denials == [], "a review would have been refused"
    assert cause.field == "spec"
    assert "1000 Secrets: the limit is 128" in cause.message
