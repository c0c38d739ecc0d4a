"""PodDisruptionBudget and NetworkPolicy of a cluster's servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import meta, networking, policy
from steersman_databases.engines.naming import CLUSTER_LABEL, ClusterNames, instances_selector
from steersman_databases.engines.server_pod import METRICS_PORT

_PREFIX = "app.kubernetes.io"
# Labels of the operator's pods, from config/manager.
_OPERATOR_LABELS: Mapping[str, str] = {
    "app.kubernetes.io/name": "steersman-databases",
    "app.kubernetes.io/component": "operator",
}


def disruption_budget(
    names: ClusterNames, labels: Mapping[str, str], max_unavailable: int | str
) -> policy.PodDisruptionBudget:
    """Return the budget of instances for voluntary disruptions.

    An instance that is not ready may always be evicted. Read replicas do not count, so that none of them prevents the
    eviction of an instance.
    """
    return policy.PodDisruptionBudget(
        metadata=_metadata(names, labels),
        spec=policy.PodDisruptionBudgetSpec(
            max_unavailable=max_unavailable,
            selector=meta.LabelSelector(match_labels=instances_selector(names)),
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )


def network_policy(
    names: ClusterNames,
    labels: Mapping[str, str],
    port: int,
    member_ports: Sequence[int],
    operator_namespace: str,
    backup_port: int | None = None,
) -> networking.NetworkPolicy:
    """Return the policy for ingress to servers.

    SQL and metrics are reachable from everywhere. The members' own ports are reachable from the cluster's servers
    and
    from the operator. Backup Jobs of the cluster reach `backup_port` if it differs from `port`. Kubelets always
    reach the pods of their node.

    Args:
        operator_namespace: namespace in which the labels of the operator's pods count, because any user may set them
            elsewhere. If it is empty, the namespace is unknown, and they count everywhere.
    """
    from_anywhere = meta.LabelSelector()
    same_namespace = meta.LabelSelector(match_labels={"kubernetes.io/metadata.name": operator_namespace})
    from_operator = networking.NetworkPolicyPeer(
        namespace_selector=same_namespace if operator_namespace else from_anywhere,
        pod_selector=meta.LabelSelector(match_labels=_OPERATOR_LABELS),
    )
    return networking.NetworkPolicy(
        metadata=_metadata(names, labels),
        spec=networking.NetworkPolicySpec(
            pod_selector=_servers(names),
            policy_types=["Ingress"],
            ingress=[
                networking.NetworkPolicyIngressRule(ports=[_tcp(port), _tcp(METRICS_PORT)]),
                *(
                    networking.NetworkPolicyIngressRule(
                        ports=[_tcp(each)],
                        from_=[networking.NetworkPolicyPeer(pod_selector=_servers(names)), from_operator],
                    )
                    for each in member_ports
                ),
                *([] if backup_port is None else [_from_backup_jobs(names, backup_port)]),
            ],
        ),
    )


def _from_backup_jobs(names: ClusterNames, port: int) -> networking.NetworkPolicyIngressRule:
    labels = {f"{_PREFIX}/instance": names.key.name, f"{_PREFIX}/component": "backup"}
    jobs = networking.NetworkPolicyPeer(pod_selector=meta.LabelSelector(match_labels=labels))
    return networking.NetworkPolicyIngressRule(ports=[_tcp(port)], from_=[jobs])


def _servers(names: ClusterNames) -> meta.LabelSelector:
    return meta.LabelSelector(match_labels={CLUSTER_LABEL: names.key.name})


def _tcp(port: int) -> networking.NetworkPolicyPort:
    return networking.NetworkPolicyPort(port=port, protocol="TCP")


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> meta.ObjectMeta:
    account = names.service_account
    return meta.ObjectMeta(name=account.name, namespace=account.namespace, labels=labels)
