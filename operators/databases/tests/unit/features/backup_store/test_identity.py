"""Workload identity: annotations of a store, and the pods that get a token."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from database_support.unit.backup_stores import secret, store
from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_common import ArchiveSettings
from steersman_databases.cluster.rules.pod_hashes import auxiliary_hash, restart_hash
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.engines.workload_identity import WorkloadIdentity, identity_of_document
from steersman_databases.features.access.rbac import service_account
from steersman_databases.features.backup.instance_jobs import instance_job
from steersman_databases.features.backup.specs import JobPlan, program_job
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.identity import identity_annotations
from steersman_databases.features.backup_store.model import STORE_LABEL, resolve_access
from steersman_databases.features.backup_store.pod_identity import require_same_identity
from steersman_databases.features.backup_store.probe_process import ProbeProcess
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod

ROLE = "eks.amazonaws.com/role-arn"
CLIENT = "azure.workload.identity/client-id"
TENANT = "azure.workload.identity/tenant-id"
ACCOUNT = "iam.gke.io/gcp-service-account"
ARN = "arn:aws:iam::123456789012:role/backups"
UUID = "0a1b2c3d-0000-4000-8000-000000000000"
KEY = {"archive-key": secret("archive-key", {"passphrase": b"p"}, {STORE_LABEL: "archive"})}
LOCATIONS: dict[str, dict[str, Any]] = {
    "s3": {"s3": {"bucket": "backups", "region": "eu-central-1"}},
    "gcs": {"s3": None, "gcs": {"bucket": "backups"}},
    "azure": {"s3": None, "azure": {"container": "backups", "account": "acc"}},
}
DECLARED = {
    "s3": {ROLE: ARN},
    "gcs": {ACCOUNT: "backups@project-1.iam.gserviceaccount.com"},
    "azure": {CLIENT: UUID, TENANT: UUID},
}


def _store(service: str, annotations: dict[str, str], **spec: Any) -> BackupStore:
    credentials = {"workloadIdentity": {"serviceAccountAnnotations": annotations}}
    fields: dict[str, Any] = {**LOCATIONS[service], "credentials": credentials, **spec}
    return store(**fields)


def _access(service: str) -> StoreAccess:
    return resolve_access(_store(service, DECLARED[service]), KEY)


def _document(service: str, engine: Any = "mysql") -> dict[str, Any]:
    return _access(service).pod_document(engine=engine, path="p", cluster_uid="u", archive=ArchiveSettings())


def _cluster(service: str = "s3") -> DeclaredCluster:
    cluster, identity = declared_cluster(), identity_of_document(_document(service))
    return dataclasses.replace(cluster, pod_settings=dataclasses.replace(cluster.pod_settings, identity=identity))


@pytest.mark.parametrize(
    ("service", "annotations", "message"),
    [
        ("s3", {}, f"lacks {ROLE}. Set it to arn:aws:iam::"),
        ("s3", {ROLE: "backups"}, f"{ROLE} is malformed. Set it to arn:aws:iam::ACCOUNT:role/NAME"),
        ("s3", {ROLE: f"{ARN}\nexport X=1"}, f"{ROLE} is malformed"),
        ("s3", {ROLE: ARN, "example.com/owner": "me"}, "Remove example.com/owner"),
        ("azure", {CLIENT: UUID}, f"lacks {TENANT}. Set it to the tenant ID"),
        ("azure", {CLIENT: "x", TENANT: UUID}, f"{CLIENT} is malformed"),
        ("gcs", {ACCOUNT: "me@example.com"}, f"{ACCOUNT} is malformed"),
        ("gcs", {ROLE: ARN}, f"may only have {ACCOUNT}. Remove {ROLE}"),
    ],
)
def test_bad_annotation_is_named(service: str, annotations: dict[str, str], message: str) -> None:
    with pytest.raises(StoreProblem) as found:
        identity_annotations(_store(service, annotations))
    assert found.value.reason == "InvalidIdentity"
    assert message in str(found.value)
    assert "spec.credentials.workloadIdentity.serviceAccountAnnotations" in str(found.value)


def test_other_endpoints_than_those_of_aws_are_refused() -> None:
    location = {"bucket": "backups", "endpoint": "https://minio.storage.svc:9000"}
    with pytest.raises(StoreProblem, match=r"Remove spec\.s3\.endpoint") as found:
        identity_annotations(_store("s3", {ROLE: ARN}, s3=location))
    assert found.value.reason == "UnsupportedStore"
    location["endpoint"] = "https://bucket.vpce-1.s3.eu-central-1.vpce.amazonaws.com"
    assert identity_annotations(_store("s3", {ROLE: ARN}, s3=location)) == {ROLE: ARN}


@pytest.mark.parametrize("service", ["s3", "gcs", "azure"])
def test_document_has_annotations_and_no_credentials(service: str) -> None:
    document = _document(service)
    assert document["serviceAccountAnnotations"] == DECLARED[service]
    assert not any(document[name] for name in ("accessKeyId", "secretAccessKey", "sessionToken"))


def test_azure_is_limited_by_the_programs() -> None:
    with pytest.raises(StoreProblem, match="pgBackRest does not support the workload identity of Azure"):
        _document("azure", "postgresql")
    dump = _access("azure").pod_document(
        engine="postgresql", path="p", cluster_uid="u", archive=ArchiveSettings(), dumps=True
    )
    assert dump["service"] == "azure"
    with_key = StoreAccess(service="azure", bucket="b", account="acc", secret_access_key="hush")
    assert with_key.pod_document(engine="postgresql", path="p", cluster_uid="u", archive=ArchiveSettings())
    with pytest.raises(StoreProblem, match="restic accepts the access key of Azure only in its environment"):
        with_key.pod_document(engine="mysql", path="p", cluster_uid="u", archive=ArchiveSettings())


@pytest.mark.parametrize("service", ["s3", "gcs", "azure"])
async def test_operator_has_no_client_for_identity(service: str) -> None:
    listing = await ProbeProcess().list(_access(service))
    assert listing.reason == "UnsupportedStore" and "belongs to the pods of clusters" in listing.message


async def test_operator_has_no_client_without_credentials() -> None:
    listing = await ProbeProcess().list(StoreAccess(bucket="backups"))
    assert listing.reason == "UnsupportedStore"


def _plan(component: Any) -> JobPlan:
    return JobPlan(key=ObjectKey("shop", "job"), subcommand="backup", image="i", document={}, component=component)


def _pods(cluster: DeclaredCluster) -> dict[str, dict[str, Any]]:
    engine = PostgreSQLEngine()
    parts, fenced = (engine.pod_contribution(cluster, 0, fenced=each) for each in (False, True))
    return {
        "instance": to_builtins(instance_pod(cluster, InstanceSettings(ordinal=0, image="i"), parts)),
        "backup": to_builtins(program_job(cluster, _plan("backup")))["spec"]["template"]["spec"],
        "recovery": to_builtins(instance_job(cluster, _plan("recovery"), 0, fenced))["spec"]["template"]["spec"],
    }


@pytest.mark.parametrize(
    ("service", "audience", "variables"),
    [
        ("s3", "sts.amazonaws.com", {"AWS_ROLE_ARN": ARN, "AWS_REGION": "eu-central-1"}),
        ("azure", "api://AzureADTokenExchange", {"AZURE_CLIENT_ID": UUID, "AZURE_TENANT_ID": UUID}),
    ],
)
def test_pods_get_token_and_variables(service: str, audience: str, variables: dict[str, str]) -> None:
    for name, pod in _pods(_cluster(service)).items():
        (volume,) = [each for each in pod["volumes"] if each["name"] == "store-identity"]
        (source,) = volume["projected"]["sources"]
        assert source["serviceAccountToken"]["audience"] == audience, name
        assert pod["serviceAccountName"] == "orders"
        for container in pod["containers"]:
            environment = {each["name"]: each.get("value") for each in container.get("env", [])}
            assert variables.items() <= environment.items(), (name, container["name"])
            token_file = next(value for key, value in environment.items() if key.endswith("TOKEN_FILE"))
            (mount,) = [each for each in container["volumeMounts"] if each["name"] == "store-identity"]
            assert mount["readOnly"] and token_file == f"{mount['mountPath']}/token"


def test_other_pods_get_no_token() -> None:
    for cluster in (declared_cluster(), _cluster("gcs")):
        for name, pod in _pods(cluster).items():
            assert "store-identity" not in str(pod), name


def test_identity_restarts_instances_only() -> None:
    plain, cluster = declared_cluster(), _cluster()
    assert restart_hash(cluster, "i") != restart_hash(plain, "i")
    assert restart_hash(_cluster("gcs"), "i") == restart_hash(plain, "i")
    assert auxiliary_hash(cluster, "i") == restart_hash(plain, "i")


def test_service_account_has_annotations() -> None:
    names = ClusterNames(ObjectKey("shop", "orders"))
    assert to_builtins(service_account(names, {}, {ROLE: ARN}))["metadata"]["annotations"] == {ROLE: ARN}
    assert "annotations" not in to_builtins(service_account(names, {}))["metadata"]


def test_source_with_other_identity_is_refused() -> None:
    require_same_identity(_cluster(), _document("s3"))
    require_same_identity(_cluster(), {"service": "s3", "accessKeyId": "id"})
    for cluster in (declared_cluster(), _cluster("gcs")):
        with pytest.raises(StoreProblem, match="another workload identity"):
            require_same_identity(cluster, _document("s3"))


def test_malformed_document_has_no_identity() -> None:
    assert identity_of_document({}) is None
    assert identity_of_document({"service": "s3", "serviceAccountAnnotations": {}}) is None
    assert identity_of_document({"service": "gcs", "serviceAccountAnnotations": {}}) == WorkloadIdentity(
        service="gcs", annotations={}
    )
