"""PostgreSQL's part in the Kubernetes objects of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steersman.api.apply import core, meta
from steersman.meta import ApplyConfiguration, ObjectKey
from steersman_databases.engines.cluster_engine import (
    DeclaredCluster,
    InstanceResources,
    PodContribution,
    PodPermissions,
    PostInitRunner,
    SettingCatalog,
    SizedParameter,
    Verdict,
)
from steersman_databases.engines.postgresql.sql import post_init_sql
from steersman_databases.engines.postgresql.sql.accounts import system_accounts

from . import pod
from .config import hba, parameters, sizing
from .ha import patroni


class PostgreSQLEngine:
    """The `ClusterEngine` of servers that Patroni runs."""

    name = "postgresql"
    port = patroni.PORT
    member_ports = (patroni.REST_PORT,)
    # Patroni lists and watches objects by label, and its callback checks whether another pod serves.
    permissions = PodPermissions(
        pods=("get", "patch"), every_pod=("list", "watch"), every_config_map=("list", "watch")
    )
    administrator = hba.ADMINISTRATOR_ROLE

    def pod_contribution(self, cluster: DeclaredCluster, instance: int, *, fenced: bool = False) -> PodContribution:
        """Return containers and volumes of Patroni, which runs PostgreSQL.

        All instances are equal.
        """
        return pod.pod_contribution(cluster, fenced=fenced)

    def supporting_objects(self, cluster: DeclaredCluster) -> Sequence[ApplyConfiguration[Any]]:
        """Return Patroni's file and ConfigMaps.

        Patroni writes the ConfigMaps, but may not create them.
        """
        names = cluster.names
        labels = patroni.dcs_labels(cluster)
        slices = [key.name for service in cluster.writable_services for key in names.endpoint_slices(service)]
        return [
            *(core.ConfigMap(metadata=_meta(key, labels)) for key in cluster.dcs.all_keys),
            core.ConfigMap(
                # Without the label of the members, so that Patroni's watch does not receive it.
                metadata=_meta(
                    names.local_configuration, {k: v for k, v in labels.items() if k.startswith("app.kubernetes.io/")}
                ),
                data={
                    "patroni.yaml": patroni.local_configuration(cluster),
                    "endpoint-slices": "".join(f"{name}\n" for name in slices),
                    "roles.sql": system_accounts.statements(),
                    "roles-check.sql": system_accounts.check_statement(),
                },
            ),
        ]

    def shared_configuration(self, cluster: DeclaredCluster) -> Mapping[str, Any]:
        """Patroni's dynamic configuration."""
        return patroni.dynamic_configuration(cluster)

    def post_init_runner(self, cluster: DeclaredCluster) -> PostInitRunner:
        """See `post_init_sql.post_init_runner`."""
        return post_init_sql.post_init_runner(cluster)

    def validate_hba(self, rule: str) -> str | None:
        """See `hba.validate_line`."""
        return hba.validate_line(rule)

    def classify(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """See `parameters.classify`."""
        return parameters.classify(name, value, catalog)

    def effective_value(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """See `parameters.effective_value`."""
        return parameters.effective_value(name, value, catalog)

    def conflicts(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """See `parameters.conflicts`."""
        return parameters.conflicts(values)

    def fixed_memory(self, name: str, value: str) -> int | None:
        """See `parameters.fixed_memory`."""
        return parameters.fixed_memory(name, value)

    def sized_parameters(self, cluster: DeclaredCluster, resources: InstanceResources) -> Iterable[SizedParameter]:
        """See `sizing.sized_parameters`."""
        return sizing.sized_parameters(resources, cluster.parameters, int(cluster.version))

    def managed_parameters(self, cluster: DeclaredCluster, names: Iterable[str]) -> frozenset[str]:
        """See `patroni.managed_parameters`."""
        return patroni.managed_parameters(cluster, names)

    def allows_alter_system(self, cluster: DeclaredCluster) -> bool:
        """See `patroni.allows_alter_system`."""
        return patroni.allows_alter_system(cluster)


def _meta(key: ObjectKey, labels: Mapping[str, str]) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels)
