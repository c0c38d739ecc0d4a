"""MySQL's part in the Kubernetes objects of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steersman.api.apply import core, meta
from steersman.meta import ApplyConfiguration

from ..cluster import ClusterView, Configurer, PodParts, Rights, SettingCatalog, Verdict
from . import furnishing, initial, parameters, pod


class MySQLCluster:
    """Servers in one group of MySQL's Group Replication, each below an agent. A `ClusterEngine`."""

    name = "mysql"
    port = pod.PORT
    member_ports: Sequence[int] = ()
    """None: members talk to each other over the port for SQL, by MySQL's own protocol."""
    rights = Rights(pods=("patch",), every_pod=("list",))
    administrator = furnishing.ADMINISTRATOR

    def pod(self, cluster: ClusterView, instance: int, *, fenced: bool = False) -> PodParts:
        """The agent, with MySQL below it; the same in each instance."""
        return pod.pod_parts(cluster, fenced=fenced)

    def objects(self, cluster: ClusterView) -> Sequence[ApplyConfiguration[Any]]:
        """The ConfigMap of the group, which the members write but have no right to make, and what they read."""
        names, labels = cluster.names, pod.member_labels(cluster)
        slices = [key.name for service in cluster.writable_services for key in names.slices(service)]
        return [
            core.ConfigMap(
                metadata=meta.ObjectMeta(name=names.group.name, namespace=names.group.namespace, labels=labels)
            ),
            core.ConfigMap(
                metadata=meta.ObjectMeta(
                    name=names.mysql_configuration.name, namespace=names.mysql_configuration.namespace, labels=labels
                ),
                data={
                    "accounts.sql": "".join(f"{statement};\n" for statement in furnishing.statements()),
                    "slices": "".join(f"{name}\n" for name in slices),
                },
            ),
        ]

    def settings(self, cluster: ClusterView) -> Mapping[str, Any]:
        """What stands in the annotations of the group's ConfigMap; see `topology`."""
        return {
            self.name: {"parameters": parameters.server_parameters(cluster)},
            "instances": sorted(cluster.present),
            "recovered": cluster.recovered,
        }

    def configurer(self, cluster: ClusterView) -> Configurer:
        """See `initial.configurer`."""
        return initial.configurer(cluster)

    def access_problem(self, rule: str) -> str | None:
        """MySQL has no such rules."""
        return None

    def judge(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """See `parameters.judge`."""
        return parameters.judge(name, value, catalog)

    def shown_instead(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """See `parameters.shown_instead`."""
        return parameters.shown_instead(name, value, catalog)

    def at_odds(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """See `ClusterEngine.at_odds`. None are known."""
        return ()

    def held(self, name: str, value: str) -> int | None:
        """See `parameters.held`."""
        return parameters.held(name, value)

    def keeps(self, cluster: ClusterView, names: Iterable[str]) -> frozenset[str]:
        """None that a server could have in a file of its own: what SET PERSIST writes is not read."""
        return frozenset()

    def can_be_altered(self, cluster: ClusterView) -> bool:
        """Not so that it would outrank what the agent tells the server."""
        return False
