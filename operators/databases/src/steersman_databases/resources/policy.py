"""PodDisruptionBudget and NetworkPolicy of a cluster's servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import meta, networking, policy
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ClusterNames

# What the operator's own pods bear, in config/manager.
_OPERATOR: Mapping[str, str] = {
    "app.kubernetes.io/name": "steersman-databases",
    "app.kubernetes.io/component": "operator",
}


def disruption_budget(
    names: ClusterNames, labels: Mapping[str, str], max_unavailable: int | str
) -> policy.PodDisruptionBudget:
    """How many servers a drain may take at once; one that is not ready anyway may always be taken."""
    return policy.PodDisruptionBudget(
        metadata=_metadata(names, labels),
        spec=policy.PodDisruptionBudgetSpec(
            max_unavailable=max_unavailable,
            selector=_servers(names),
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )


def network_policy(
    names: ClusterNames, labels: Mapping[str, str], port: int, member_ports: Sequence[int], operator: str
) -> networking.NetworkPolicy:
    """SQL from everywhere; the members' own ports from the cluster's own servers and the operator.

    The operator's pods are known by their labels, which anybody may give to his own: so they count in the namespace
    ``operator`` alone, and in every one only where that is empty, since nobody knows where the operator runs.
    Kubelets reach the pods of their node whatever a policy says.
    """
    everywhere = meta.LabelSelector()
    home = meta.LabelSelector(match_labels={"kubernetes.io/metadata.name": operator})
    operators = networking.NetworkPolicyPeer(
        namespace_selector=home if operator else everywhere,
        pod_selector=meta.LabelSelector(match_labels=_OPERATOR),
    )
    return networking.NetworkPolicy(
        metadata=_metadata(names, labels),
        spec=networking.NetworkPolicySpec(
            pod_selector=_servers(names),
            policy_types=["Ingress"],
            ingress=[
                networking.NetworkPolicyIngressRule(ports=[_tcp(port)]),
                *(
                    networking.NetworkPolicyIngressRule(
                        ports=[_tcp(each)],
                        from_=[networking.NetworkPolicyPeer(pod_selector=_servers(names)), operators],
                    )
                    for each in member_ports
                ),
            ],
        ),
    )


def _servers(names: ClusterNames) -> meta.LabelSelector:
    return meta.LabelSelector(match_labels={MEMBER_OF_LABEL: names.key.name})


def _tcp(port: int) -> networking.NetworkPolicyPort:
    return networking.NetworkPolicyPort(port=port, protocol="TCP")


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> meta.ObjectMeta:
    account = names.account
    return meta.ObjectMeta(name=account.name, namespace=account.namespace, labels=labels)
