"""Names and labels of a cluster's objects, derived from its name.

With a cluster name of 45 characters, every name fits a label (63 characters).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from steersman.meta import ObjectKey

CLUSTER_LABEL = "databases.steersman.dev/cluster"
"""Label of server pods: the cluster.

With the label `app.kubernetes.io/instance` of this cluster, a pod is a member to Patroni, with a replication slot.
Read replicas have another value of that label.
"""
ROLE_LABEL = "databases.steersman.dev/role"
"""Label of server pods: ``primary`` or ``replica``. The members write it."""
INSTANCE_LABEL = "databases.steersman.dev/instance"
"""Label of StatefulSets, pods and PVCs: the ordinal of the instance."""
READ_REPLICA_LABEL = "databases.steersman.dev/read-replica"
"""Label of StatefulSets, pods and PVCs of read replicas: their number."""
READ_REPLICA_SUFFIX = ".read"
VERSION_LABEL = "app.kubernetes.io/version"
"""Label of StatefulSets and pods: the version of the servers."""

OPERATOR_ROLE = "steersman_operator"
"""Account of the operator on the servers. These accounts log in by certificate only."""
SUPERUSER_ROLE = "steersman_superuser"
"""Account with all privileges. Its certificate is issued on demand and not stored."""
REPLICATION_ROLE = "steersman_replication"
"""Account for replication between members."""
MONITOR_ROLE = "steersman_monitor"
"""Account of the exporter, which reads statistics. On MySQL it uses the certificate of the members."""
QUERIES_ROLE = "steersman_queries"
"""Account of the exporter for user queries. Users grant to it what their queries read."""
BACKUP_PORTS = {"postgresql": 8432, "mysql": 3306}
"""Port for backup Jobs, by engine: pgBackRest's server, or MySQL."""
BACKUP_ROLE = "steersman_backup"
"""Account of backup Jobs, which log in by certificate only."""


def read_replica_slot(number: int) -> str:
    """Replication slot of a read replica. images/common/steersman_instance/read_replica uses the same name."""
    return f"steersman_read_{number}"


def member_slot_pattern(names: ClusterNames) -> str:
    """Return the regular expression of the slots of instances and read replicas.

    Patroni derives them from the names of the members.
    """
    members = names.instance(0).removesuffix("0").replace("-", "_")
    return f"{members}[0-9]+_0|{read_replica_slot(0).removesuffix('0')}[0-9]+"


ServiceRole = Literal["rw", "ro", "r"]


@dataclass(frozen=True, slots=True)
class DcsConfigMaps:
    """ConfigMaps by which the members of a cluster coordinate.

    Attributes:
        every: all of them.
        leader: holds the current leader.
        requests: holds requested switchovers.
    """

    all_keys: tuple[ObjectKey, ...]
    leader: ObjectKey
    requests: ObjectKey


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """Keys of all objects of a cluster. Instances are numbered from 0."""

    key: ObjectKey

    def instance(self, ordinal: int) -> str:
        """Name of an instance in annotations, status and messages."""
        return f"{self.key.name}-{ordinal}"

    def ordinal(self, instance: str) -> int | None:
        """Ordinal of an instance name. None for foreign names."""
        prefix, _, ordinal = instance.rpartition("-")
        return int(ordinal) if prefix == self.key.name and ordinal.isascii() and ordinal.isdecimal() else None

    def ordinal_of_instance(self, name: str) -> int | None:
        """Ordinal of an instance by its name or its pod's name."""
        ordinal = self.ordinal(name)
        return self.ordinal(name.removesuffix("-0")) if ordinal is None else ordinal

    def statefulset(self, ordinal: int) -> ObjectKey:
        return self._named(self.instance(ordinal))

    def pod(self, ordinal: int) -> ObjectKey:
        """Pod of an instance. Its name is the member name in Patroni."""
        return self._named(f"{self.instance(ordinal)}-0")

    def data_pvc(self, ordinal: int) -> ObjectKey:
        return self._named(f"data-{self.instance(ordinal)}")

    def wal_pvc(self, ordinal: int) -> ObjectKey:
        return self._named(f"wal-{self.instance(ordinal)}")

    def ordinal_of_pvc(self, pvc_name: str) -> int | None:
        """Ordinal of a PVC name. None for other PVCs, such as copies with the labels."""
        volume, _, instance = pvc_name.partition("-")
        return self.ordinal(instance) if volume in ("data", "wal") else None

    def read_replica(self, number: int) -> ObjectKey:
        """StatefulSet of a read replica. No instance of any cluster has such a name, which ends in a number alone."""
        return self._named(f"{self.key.name}-read{number}")

    def read_replica_pvc(self, number: int) -> ObjectKey:
        """PVC of a read replica."""
        return self._named(f"data-{self.read_replica(number).name}")

    @property
    def read_replica_configuration(self) -> ObjectKey:
        """ConfigMap with what all read replicas read."""
        return self._suffixed("read-replicas")

    @property
    def read_replica_group(self) -> str:
        """Value of the label `app.kubernetes.io/instance` of read replicas. No cluster has this name."""
        return f"{self.key.name}{READ_REPLICA_SUFFIX}"

    @property
    def headless_service(self) -> ObjectKey:
        return self._suffixed("headless")

    def service(self, role: ServiceRole) -> ObjectKey:
        return self._suffixed(role)

    def endpoint_slices(self, service: str) -> tuple[ObjectKey, ObjectKey]:
        """EndpointSlices of a primary's Service, for IPv4 and IPv6.

        Members may write them by name. Names of clusters have no dot, so that no other cluster can have these
        names, even with a Service of the same name.
        """
        own = service if service == self.service("rw").name else f"{self.key.name}.{service}"
        return self._named(f"{own}-ipv4"), self._named(f"{own}-ipv6")

    def dcs_of(self, engine: str) -> DcsConfigMaps:
        """ConfigMaps of the members, by engine."""
        return _dcs_config_maps(self, engine)

    @property
    def group_config(self) -> ObjectKey:
        """ConfigMap of a MySQL group."""
        return self._suffixed("group")

    @property
    def dcs_config(self) -> ObjectKey:
        return self._suffixed("config")

    @property
    def dcs_leader(self) -> ObjectKey:
        return self._suffixed("leader")

    @property
    def dcs_sync(self) -> ObjectKey:
        return self._suffixed("sync")

    @property
    def dcs_failover(self) -> ObjectKey:
        return self._suffixed("failover")

    @property
    def dcs_timelines(self) -> ObjectKey:
        """ConfigMap with the last reserved timeline. The image writes it, not Patroni."""
        return self._suffixed("timelines")

    @property
    def local_configuration(self) -> ObjectKey:
        """ConfigMap with the files of each member."""
        return self._suffixed("patroni")

    @property
    def mysql_configuration(self) -> ObjectKey:
        """ConfigMap with the files of each MySQL member."""
        return self._suffixed("mysql")

    @property
    def queries(self) -> ObjectKey:
        """ConfigMap with the user queries of the exporter. Absent without `spec.monitoring.queries`."""
        return self._suffixed("queries")

    @property
    def usage(self) -> ObjectKey:
        """ConfigMap with the recorded use of CPU, memory and disk."""
        return self._suffixed("usage")

    @property
    def service_account(self) -> ObjectKey:
        """ServiceAccount, Role, RoleBinding, PodDisruptionBudget and NetworkPolicy."""
        return self.key

    @property
    def ca_secret(self) -> ObjectKey:
        return self._suffixed("ca")

    @property
    def server_certificate(self) -> ObjectKey:
        return self._suffixed("tls")

    @property
    def peer_certificate(self) -> ObjectKey:
        return self._suffixed("peer")

    @property
    def operator_certificate(self) -> ObjectKey:
        return self._suffixed("operator")

    @property
    def administrator_secret(self) -> ObjectKey:
        return self._suffixed("admin")

    @property
    def application_secret(self) -> ObjectKey:
        return self._suffixed("app")

    @property
    def post_init_job(self) -> ObjectKey:
        return self._suffixed("init")

    @property
    def upgrade_job(self) -> ObjectKey:
        return self._suffixed("upgrade")

    @property
    def upgrade_check_job(self) -> ObjectKey:
        """Job that checks the extensions of an upgrade image."""
        return self._suffixed("upgrade-check")

    @property
    def backup_secret(self) -> ObjectKey:
        """Secret with the object store of the cluster, ``store.json``. Absent without ``spec.backup``."""
        return self._suffixed("backup")

    @property
    def backup_client_certificate(self) -> ObjectKey:
        """Secret with the client certificate of backup Jobs."""
        return self._suffixed("backup-client")

    @property
    def backup_catalog(self) -> ObjectKey:
        """ConfigMap with the primary's report of archive and backups."""
        return self._suffixed("backup-catalog")

    @property
    def recovery_job(self) -> ObjectKey:
        return self._suffixed("recovery")

    @property
    def final_backup_job(self) -> ObjectKey:
        return self._suffixed("final-backup")

    def backup_job(self, backup_uid: str) -> ObjectKey:
        """Job and ConfigMap of the ``Backup`` with this UID."""
        return self._suffixed(f"backup-{hashlib.sha256(backup_uid.encode()).hexdigest()[:8]}")

    def expire_job(self, backup_uid: str) -> ObjectKey:
        """Job and ConfigMap that delete a ``Backup`` from the store, by UID."""
        return self._suffixed(f"expire-{hashlib.sha256(backup_uid.encode()).hexdigest()[:8]}")

    def verification_job(self, backup_uid: str, request: str) -> ObjectKey:
        """Job and ConfigMap of a requested verification, by UID of the ``Backup``."""
        return self._suffixed(f"verify-{hashlib.sha256(f'{backup_uid} {request}'.encode()).hexdigest()[:8]}")

    def restore_job(self, restore_uid: str) -> ObjectKey:
        """Job, ConfigMap and Secret of the ``Restore`` with this UID."""
        return self._suffixed(f"restore-{hashlib.sha256(restore_uid.encode()).hexdigest()[:8]}")

    def restore_plan_job(self, restore_uid: str) -> ObjectKey:
        """Job and ConfigMap that plan the ``Restore`` with this UID."""
        return self._suffixed(f"restore-plan-{hashlib.sha256(restore_uid.encode()).hexdigest()[:8]}")

    def _suffixed(self, suffix: str) -> ObjectKey:
        return ObjectKey(self.key.namespace, f"{self.key.name}-{suffix}")

    def _named(self, name: str) -> ObjectKey:
        return ObjectKey(self.key.namespace, name)


@lru_cache(maxsize=1024)
def _dcs_config_maps(names: ClusterNames, engine: str) -> DcsConfigMaps:
    if engine == "mysql":
        return DcsConfigMaps((names.group_config,), names.group_config, names.group_config)
    all_keys = (names.dcs_config, names.dcs_leader, names.dcs_sync, names.dcs_failover, names.dcs_timelines)
    return DcsConfigMaps(all_keys, names.dcs_leader, names.dcs_failover)


def instances_selector(names: ClusterNames) -> dict[str, str]:
    """Labels of the pods of instances, without those of read replicas."""
    return {CLUSTER_LABEL: names.key.name, "app.kubernetes.io/instance": names.key.name}
