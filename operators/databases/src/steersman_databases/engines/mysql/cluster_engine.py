"""MySQL's part in the Kubernetes objects of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steersman.api.apply import core, meta
from steersman.meta import ApplyConfiguration

from ..cluster_engine import (
    DeclaredCluster,
    InstanceResources,
    PodContribution,
    PodPermissions,
    PostInitRunner,
    SettingCatalog,
    SizedParameter,
    Verdict,
)
from ..naming import CLUSTER_LABEL
from . import pod
from .config import parameters, sizing
from .sql import post_init_sql, system_accounts


class MySQLEngine:
    """The `ClusterEngine` of Group Replication, with an agent for each server."""

    name = "mysql"
    port = pod.PORT
    member_ports: Sequence[int] = ()
    """None: members communicate over the SQL port with MySQL's own protocol."""
    permissions = PodPermissions(pods=("patch",), every_pod=("list",))
    administrator = system_accounts.ADMINISTRATOR

    def pod_contribution(self, cluster: DeclaredCluster, instance: int, *, fenced: bool = False) -> PodContribution:
        """Return containers and volumes of the agent, which runs MySQL.

        All instances are equal.
        """
        return pod.pod_contribution(cluster, fenced=fenced)

    def supporting_objects(self, cluster: DeclaredCluster) -> Sequence[ApplyConfiguration[Any]]:
        """Return the group's ConfigMap and the configuration of members.

        Members write the group's ConfigMap, but may not create it.
        """
        names, labels = cluster.names, pod.member_labels(cluster)
        slices = [key.name for service in cluster.writable_services for key in names.endpoint_slices(service)]
        return [
            core.ConfigMap(
                metadata=meta.ObjectMeta(
                    name=names.group_config.name,
                    namespace=names.group_config.namespace,
                    # It outlives the cluster, so it has no label by which tools track their objects.
                    labels={CLUSTER_LABEL: cluster.key.name},
                )
            ),
            core.ConfigMap(
                metadata=meta.ObjectMeta(
                    name=names.mysql_configuration.name, namespace=names.mysql_configuration.namespace, labels=labels
                ),
                data={
                    "accounts.sql": "".join(f"{statement};\n" for statement in system_accounts.statements()),
                    "endpoint-slices": "".join(f"{name}\n" for name in slices),
                },
            ),
        ]

    def shared_configuration(self, cluster: DeclaredCluster) -> Mapping[str, Any]:
        """Return the content of the group's annotations; see `ha.backend`."""
        return {
            self.name: {"parameters": parameters.server_parameters(cluster)},
            "instances": sorted(cluster.existing_ordinals),
            "forceRecovery": cluster.recovery_approved_for,
        }

    def post_init_runner(self, cluster: DeclaredCluster) -> PostInitRunner:
        """See `post_init_sql.post_init_runner`."""
        return post_init_sql.post_init_runner(cluster)

    def validate_hba(self, rule: str) -> str | None:
        """Return None: MySQL does not have such rules."""
        return None

    def classify(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """See `parameters.classify`."""
        return parameters.classify(name, value, catalog)

    def effective_value(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """See `parameters.effective_value`."""
        return parameters.effective_value(name, value, catalog)

    def conflicts(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """See `ClusterEngine.conflicts`. None are known."""
        return ()

    def fixed_memory(self, name: str, value: str) -> int | None:
        """See `parameters.fixed_memory`."""
        return parameters.fixed_memory(name, value)

    def sized_parameters(self, cluster: DeclaredCluster, resources: InstanceResources) -> Iterable[SizedParameter]:
        """See `sizing.sized_parameters`."""
        return sizing.sized_parameters(resources, cluster.parameters, int(cluster.usable_size.value))

    def managed_parameters(self, cluster: DeclaredCluster, names: Iterable[str]) -> frozenset[str]:
        """Return an empty set: servers do not read values of SET PERSIST."""
        return frozenset()

    def allows_alter_system(self, cluster: DeclaredCluster) -> bool:
        """Return False: no value overrides those that the agent sets."""
        return False
