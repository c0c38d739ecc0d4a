"""RBAC roles with the least privileges that an operator needs.

``cluster_role`` converts the permissions that controllers and webhooks declare to a ClusterRole. ``compare_role``
finds missing and superfluous rules of an existing role. ``leader_election_role``, ``webhook_certificate_role`` and
``metrics_reader_role`` are roles for the manager. ``editor_role`` and ``viewer_role`` are roles for users of a kind.
Source: "Using RBAC Authorization".
"""

from steersman_manifests.rbac.check import ResourceAccess, RoleComparison, compare_role, resource_accesses
from steersman_manifests.rbac.manager_roles import leader_election_role, metrics_reader_role, webhook_certificate_role
from steersman_manifests.rbac.role import cluster_role, policy_rules
from steersman_manifests.rbac.user_roles import editor_role, viewer_role

__all__ = [
    "ResourceAccess",
    "RoleComparison",
    "cluster_role",
    "compare_role",
    "editor_role",
    "leader_election_role",
    "metrics_reader_role",
    "policy_rules",
    "resource_accesses",
    "viewer_role",
    "webhook_certificate_role",
]
