"""Fields that stand for a right of their user.

The operator acts with its own rights. A user who sets such a field needs the right to do the same without the
operator. Each field of the schemas is in one of the tables, which a test compares with the schemas. The Secrets that
an object refers to are in ``api.secret_references``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Service
from steersman.api.networking_v1 import NetworkPolicy
from steersman.meta import Object
from steersman_databases.api import Cluster, Database, MySQLCluster, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.api.cluster_common import ServiceSettings, ServicesSettings
from steersman_databases.api.secret_references import ReferencingObject


class FieldRight(NamedTuple):
    """A right: ``verb`` on ``kind`` in the namespace of the object. ``plural`` is the resource."""

    verb: str
    kind: type[Object]
    plural: str


CREATE_PODS = FieldRight("create", Pod, "pods")
CREATE_SERVICES = FieldRight("create", Service, "services")
DELETE_POLICIES = FieldRight("delete", NetworkPolicy, "networkpolicies")
DELETE_VOLUMES = FieldRight("delete", PersistentVolumeClaim, "persistentvolumeclaims")

_SERVICES = tuple(f"spec.services.{name}" for name in ("rw", "ro", "r", "additional[]"))
FIELD_RIGHTS: dict[str, FieldRight] = {
    # They decide what runs and what it may do. Labels add a pod to Services and policies of others, annotations to
    # networks, or remove its confinement. A priority can evict pods of others.
    "spec.image": CREATE_PODS,
    "spec.upgradeImage": CREATE_PODS,
    "spec.priorityClassName": CREATE_PODS,
    "spec.podMetadata": CREATE_PODS,
    "spec.backup.jobs.priorityClassName": CREATE_PODS,
    # They publish a database outside of the cluster, or under a name that applications resolve.
    **{f"{service}.type": CREATE_SERVICES for service in _SERVICES},
    **{f"{service}.annotations": CREATE_SERVICES for service in _SERVICES},
    **{f"{service}.nodePort": CREATE_SERVICES for service in _SERVICES},
    **{f"{service}.loadBalancerClass": CREATE_SERVICES for service in _SERVICES},
    # Without them, all addresses reach a load balancer.
    **{f"{service}.loadBalancerSourceRanges": CREATE_SERVICES for service in _SERVICES},
    "spec.services.additional[].name": CREATE_SERVICES,
    # Without its policy, all pods reach the ports of the members.
    "spec.networkPolicy": DELETE_POLICIES,
    # The change to Delete destroys volumes that were to be kept.
    "spec.deletionPolicy": DELETE_VOLUMES,
}
"""Rights by field. They are reviewed for new values."""

UNPRIVILEGED_FIELDS = (
    # Each cluster has to declare nodes and resources: reserve them by quotas and admission policies.
    *("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "resources", "instances", "storage"),
    *("walStorage", "shmSize", "storageSize", "autogrow", "sizing", "imagePullPolicy", "pooler", "readReplicas"),
    # The state of the servers, which belong to the object.
    *("version", "postgresql", "mysql", "podDisruptionBudget", "hibernated", "replaceFailedInstances", "maintenance"),
    *("monitoring", "backup", "bootstrap", "forceRecovery", "tls", "services", "engine"),
    *("verticalScaling", "tuning", "healing"),
    # Objects on a server, which ownership marks protect, and namespaces that the object admits.
    *("allowedNamespaces", "clusterRef", "serverRef", "databaseName", "username", "owner", "encoding", "collation"),
    *(
        "characterType",
        "localeProvider",
        "locale",
        "template",
        "connectionLimit",
        "extensions",
        "schemas",
        "adopt",
        "user",
        "secretName",
    ),
    *("database", "login", "inherit", "createDatabase", "replication", "bypassRowLevelSecurity", "limits"),
    *("validUntil", "roles", "grants", "undeclaredGrants", "rotation", "reassignTo", "password"),
    # Object stores, whose Secrets are reviewed.
    *("s3", "gcs", "azure", "credentials", "encryption", "immutability", "imagePullSecrets"),
)
"""Fields of ``spec`` without a right of their own.

References need the right to read the Secret.
"""

_SERVICE_FIELDS = ("enabled", "externalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "labels")
_JOB_FIELDS = ("nodeSelector", "processes", "resources", "tolerations")
_BACKUP_FIELDS = ("archive", "finalBackup", "retention", "retentionAfterDeletion", "schedules", "source", "storeRef")
UNPRIVILEGED_SUBFIELDS = (
    *(f"{service}.{name}" for service in _SERVICES for name in _SERVICE_FIELDS),
    "spec.services.additional[].role",
    *(f"spec.backup.{name}" for name in (*_BACKUP_FIELDS, "verification")),
    *(f"spec.backup.jobs.{name}" for name in _JOB_FIELDS),
)
"""The others of fields that contain both."""


def privileged_values(
    obj: ReferencingObject, previous: ReferencingObject | None
) -> dict[str, tuple[str | None, FieldRight]]:
    """Return the values that need a right, by field.

    None stands for the default.
    """
    found: dict[str, tuple[str | None, FieldRight]] = {}
    if isinstance(obj, PostgreSQLCluster | MySQLCluster):
        found |= {field: (value, CREATE_PODS) for field, value in _of_instances(obj)}
        found |= {field: (value, CREATE_SERVICES) for field, value in _of_services(obj.spec.services)}
        policy = None if obj.spec.network_policy == "Managed" else obj.spec.network_policy
        found["spec.networkPolicy"] = policy, DELETE_POLICIES
        found |= _of_backup_jobs(obj.spec.backup)
    elif isinstance(obj, Database):
        found |= _of_backup_jobs(obj.spec.backup)
    if previous is not None and _has_volumes(obj):
        # A new object has no volumes yet.
        deletes = obj.spec.deletion_policy == "Delete"
        found["spec.deletionPolicy"] = "Delete" if deletes else None, DELETE_VOLUMES
    return found


def _has_volumes(obj: ReferencingObject) -> TypeGuard[PostgreSQLCluster | MySQLCluster | Database]:
    return isinstance(obj, PostgreSQLCluster | MySQLCluster) or (isinstance(obj, Database) and obj.makes_cluster)


def _of_backup_jobs(backup: BackupSettings | None) -> dict[str, tuple[str | None, FieldRight]]:
    if backup is None:
        return {}
    return {"spec.backup.jobs.priorityClassName": (backup.jobs.priority_class_name, CREATE_PODS)}


def _of_instances(cluster: Cluster) -> Iterator[tuple[str, str | None]]:
    spec = cluster.spec
    yield "spec.image", spec.image
    yield "spec.upgradeImage", spec.upgrade_image if isinstance(spec, PostgreSQLClusterSpec) else None
    yield "spec.priorityClassName", spec.priority_class_name
    for name, value in spec.pod_metadata.labels.items():
        yield f"spec.podMetadata.labels[{name}]", value
    for name, value in spec.pod_metadata.annotations.items():
        yield f"spec.podMetadata.annotations[{name}]", value


def _of_services(services: ServicesSettings) -> Iterator[tuple[str, str | None]]:
    named: list[tuple[str, ServiceSettings]] = [("rw", services.rw), ("ro", services.ro), ("r", services.r)]
    for additional in services.additional:
        yield f"spec.services.additional[{additional.name}].name", additional.name
        named.append((f"additional[{additional.name}]", additional))
    for name, service in named:
        yield f"spec.services.{name}.type", None if service.type == "ClusterIP" else service.type
        yield f"spec.services.{name}.nodePort", str(service.node_port) if service.node_port else None
        yield f"spec.services.{name}.loadBalancerClass", service.load_balancer_class
        ranges = ", ".join(service.load_balancer_source_ranges) or "all addresses"
        yield f"spec.services.{name}.loadBalancerSourceRanges", ranges if service.type == "LoadBalancer" else None
        for annotation, value in service.annotations.items():
            yield f"spec.services.{name}.annotations[{annotation}]", value
