"""Names and labels of what belongs to a cluster: derived from its own name, so none is stored anywhere.

Every name fits a label (63 characters) with a cluster's name of 45.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steersman.meta import ObjectKey

MEMBER_OF_LABEL = "databases.steersman.dev/member-of"
"""On pods with a server of the cluster that it names. Whatever bears it is a member to Patroni, and gets a slot."""
ROLE_LABEL = "databases.steersman.dev/role"
"""On the same pods: ``primary`` or ``replica``, written by the members themselves."""
INSTANCE_LABEL = "databases.steersman.dev/instance"
"""On StatefulSets, pods and claims: the number of the instance."""
VERSION_LABEL = "app.kubernetes.io/version"
"""On StatefulSets and pods: the version of the servers."""

OPERATOR = "steersman_operator"
"""The operator's account in the servers of clusters. All three come in by a certificate and by nothing else."""
SUPERUSER = "steersman_superuser"
"""The one for what takes all rights; a certificate for it is signed when it is needed, and kept nowhere."""
REPLICATION = "steersman_replication"
"""The members' among each other."""

ServiceRole = Literal["rw", "ro", "r"]


@dataclass(frozen=True, slots=True)
class Store:
    """The ConfigMaps in which the members of a cluster agree.

    ``every`` are all, ``leader`` is the one that says who leads, ``requests`` the one that switchovers are asked in.
    """

    every: tuple[ObjectKey, ...]
    leader: ObjectKey
    requests: ObjectKey


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The keys of everything that belongs to the cluster ``key``. Instances are numbered from 0."""

    key: ObjectKey

    def instance(self, number: int) -> str:
        """The name of an instance, as annotations, status and messages say it."""
        return f"{self.key.name}-{number}"

    def number(self, instance: str) -> int | None:
        """The number in an instance's name; None if it is no instance of this cluster."""
        prefix, _, number = instance.rpartition("-")
        return int(number) if prefix == self.key.name and number.isascii() and number.isdecimal() else None

    def called(self, name: str) -> int | None:
        """The number of the instance that people call so: by its name, or by that of its pod."""
        number = self.number(name)
        return self.number(name.removesuffix("-0")) if number is None else number

    def statefulset(self, number: int) -> ObjectKey:
        return self._named(self.instance(number))

    def pod(self, number: int) -> ObjectKey:
        """Its name is the member's name to Patroni."""
        return self._named(f"{self.instance(number)}-0")

    def data_claim(self, number: int) -> ObjectKey:
        return self._named(f"data-{self.instance(number)}")

    def wal_claim(self, number: int) -> ObjectKey:
        return self._named(f"wal-{self.instance(number)}")

    def claimed(self, claim: str) -> int | None:
        """The number of the instance whose claim is called so; None of others, as of a copy with the same labels."""
        volume, _, instance = claim.partition("-")
        return self.number(instance) if volume in ("data", "wal") else None

    @property
    def headless_service(self) -> ObjectKey:
        return self._suffixed("headless")

    def service(self, role: ServiceRole) -> ObjectKey:
        return self._suffixed(role)

    def slices(self, service: str) -> tuple[ObjectKey, ObjectKey]:
        """The EndpointSlices of a Service that leads to the primary, for IPv4 and IPv6.

        Members may write them by name: no other cluster, which has no dot in its name, calls its own so, even where
        both declare a Service of one name.
        """
        own = service if service == self.service("rw").name else f"{self.key.name}.{service}"
        return self._named(f"{own}-ipv4"), self._named(f"{own}-ipv6")

    def store_of(self, engine: str) -> Store:
        """Where the members of a cluster of this engine agree."""
        if engine == "mysql":
            return Store((self.group,), self.group, self.group)
        every = (self.store_config, self.store_leader, self.store_sync, self.store_failover, self.store_timelines)
        return Store(every, self.store_leader, self.store_failover)

    @property
    def group(self) -> ObjectKey:
        """The ConfigMap in which members of a group of MySQL's agree."""
        return self._suffixed("group")

    @property
    def store_config(self) -> ObjectKey:
        return self._suffixed("config")

    @property
    def store_leader(self) -> ObjectKey:
        return self._suffixed("leader")

    @property
    def store_sync(self) -> ObjectKey:
        return self._suffixed("sync")

    @property
    def store_failover(self) -> ObjectKey:
        return self._suffixed("failover")

    @property
    def store_timelines(self) -> ObjectKey:
        """Not Patroni's, but of the servers' image: which number of a timeline was reserved last."""
        return self._suffixed("timelines")

    @property
    def local_configuration(self) -> ObjectKey:
        """The ConfigMap with what each member reads from a file."""
        return self._suffixed("patroni")

    @property
    def mysql_configuration(self) -> ObjectKey:
        """The ConfigMap with what each MySQL member reads from files."""
        return self._suffixed("mysql")

    @property
    def account(self) -> ObjectKey:
        """ServiceAccount, Role, RoleBinding, PodDisruptionBudget and NetworkPolicy."""
        return self.key

    @property
    def authorities(self) -> ObjectKey:
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
    def initial_job(self) -> ObjectKey:
        return self._suffixed("init")

    @property
    def upgrade_job(self) -> ObjectKey:
        return self._suffixed("upgrade")

    @property
    def upgrade_check_job(self) -> ObjectKey:
        """It looks whether the image of the upgrade has what the databases use."""
        return self._suffixed("upgrade-check")

    def _suffixed(self, suffix: str) -> ObjectKey:
        return self._named(f"{self.key.name}-{suffix}")

    def _named(self, name: str) -> ObjectKey:
        return ObjectKey(self.key.namespace, name)
