"""PodDisruptionBudget and NetworkPolicy of a cluster's servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.api.apply.networking_v1 import (
    NetworkPolicyApply,
    NetworkPolicyIngressRuleApply,
    NetworkPolicyPeerApply,
    NetworkPolicyPortApply,
    NetworkPolicySpecApply,
)
from steersman.api.apply.policy_v1 import PodDisruptionBudgetApply, PodDisruptionBudgetSpecApply
from steersman.meta import ObjectMetaApply
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ClusterNames

# What the operator's own pods bear, in config/manager.
_OPERATOR: Mapping[str, str] = {
    "app.kubernetes.io/name": "steersman-databases",
    "app.kubernetes.io/component": "operator",
}


def disruption_budget(
    names: ClusterNames, labels: Mapping[str, str], max_unavailable: int | str
) -> PodDisruptionBudgetApply:
    """How many servers a drain may take at once; one that is not ready anyway may always be taken."""
    return PodDisruptionBudgetApply(
        metadata=_metadata(names, labels),
        spec=PodDisruptionBudgetSpecApply(
            max_unavailable=max_unavailable,
            selector=_servers(names),
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )


def network_policy(
    names: ClusterNames, labels: Mapping[str, str], port: int, member_ports: Sequence[int], operator: str
) -> NetworkPolicyApply:
    """SQL from everywhere; the members' own ports from the cluster's own servers and the operator.

    The operator's pods are known by their labels, which anybody may give to his own: so they count in the namespace
    ``operator`` alone, and in every one only where that is empty, since nobody knows where the operator runs.
    Kubelets reach the pods of their node whatever a policy says.
    """
    everywhere = LabelSelectorApply()
    home = LabelSelectorApply(match_labels={"kubernetes.io/metadata.name": operator})
    operators = NetworkPolicyPeerApply(
        namespace_selector=home if operator else everywhere,
        pod_selector=LabelSelectorApply(match_labels=_OPERATOR),
    )
    return NetworkPolicyApply(
        metadata=_metadata(names, labels),
        spec=NetworkPolicySpecApply(
            pod_selector=_servers(names),
            policy_types=["Ingress"],
            ingress=[
                NetworkPolicyIngressRuleApply(ports=[_tcp(port)]),
                *(
                    NetworkPolicyIngressRuleApply(
                        ports=[_tcp(each)], from_=[NetworkPolicyPeerApply(pod_selector=_servers(names)), operators]
                    )
                    for each in member_ports
                ),
            ],
        ),
    )


def _servers(names: ClusterNames) -> LabelSelectorApply:
    return LabelSelectorApply(match_labels={MEMBER_OF_LABEL: names.key.name})


def _tcp(port: int) -> NetworkPolicyPortApply:
    return NetworkPolicyPortApply(port=port, protocol="TCP")


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> ObjectMetaApply:
    account = names.account
    return ObjectMetaApply(name=account.name, namespace=account.namespace, labels=labels)
