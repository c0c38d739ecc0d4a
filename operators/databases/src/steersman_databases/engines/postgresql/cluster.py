"""PostgreSQL's part in the Kubernetes objects of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steersman.api.apply import core, meta
from steersman.meta import ApplyConfiguration, ObjectKey
from steersman_databases.engines.cluster import ClusterView, Configurer, PodParts, Rights, SettingCatalog, Verdict

from . import accounts, hba, initial, parameters, patroni, pod


class PostgreSQLCluster:
    """Servers that Patroni runs. A `ClusterEngine`."""

    name = "postgresql"
    port = patroni.PORT
    member_ports = (patroni.REST_PORT,)
    # Patroni follows what it looks for by label, and its callback asks whether another pod serves.
    rights = Rights(pods=("get", "patch"), every_pod=("list", "watch"), every_config_map=("list", "watch"))
    administrator = hba.ADMINISTRATOR

    def pod(self, cluster: ClusterView, instance: int, *, fenced: bool = False) -> PodParts:
        """Patroni, with PostgreSQL below it; the same in each instance."""
        return pod.pod_parts(cluster, fenced=fenced)

    def objects(self, cluster: ClusterView) -> Sequence[ApplyConfiguration[Any]]:
        """Patroni's file, and the ConfigMaps that it writes but has no right to make."""
        names = cluster.names
        labels = patroni.store_labels(cluster)
        slices = [key.name for service in cluster.writable_services for key in names.slices(service)]
        return [
            *(core.ConfigMap(metadata=_meta(key, labels)) for key in cluster.store.every),
            core.ConfigMap(
                # Without the label of the members: Patroni's watch need not see it.
                metadata=_meta(
                    names.local_configuration, {k: v for k, v in labels.items() if k.startswith("app.kubernetes.io/")}
                ),
                data={
                    "patroni.yaml": patroni.local_configuration(cluster),
                    "slices": "".join(f"{name}\n" for name in slices),
                    "roles.sql": accounts.statements(),
                },
            ),
        ]

    def settings(self, cluster: ClusterView) -> Mapping[str, Any]:
        """Patroni's dynamic configuration."""
        return patroni.settings(cluster)

    def configurer(self, cluster: ClusterView) -> Configurer:
        """See `initial.configurer`."""
        return initial.configurer(cluster)

    def access_problem(self, rule: str) -> str | None:
        """See `hba.problem`."""
        return hba.problem(rule)

    def judge(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """See `parameters.judge`."""
        return parameters.judge(name, value, catalog)

    def shown_instead(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """See `parameters.shown_instead`."""
        return parameters.shown_instead(name, value, catalog)

    def at_odds(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """See `parameters.at_odds`."""
        return parameters.at_odds(values)

    def held(self, name: str, value: str) -> int | None:
        """See `parameters.held`."""
        return parameters.held(name, value)

    def keeps(self, cluster: ClusterView, names: Iterable[str]) -> frozenset[str]:
        """See `patroni.keeps`."""
        return patroni.keeps(cluster, names)

    def can_be_altered(self, cluster: ClusterView) -> bool:
        """See `patroni.can_be_altered`."""
        return patroni.can_be_altered(cluster)


def _meta(key: ObjectKey, labels: Mapping[str, str]) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels)
