"""Roles from what the declared controllers need, and nothing beyond. Source: "Using RBAC Authorization"."""

from steersman.rbac.check import Access, Findings, accesses, compare
from steersman.rbac.endpoints import leader_election_role, metrics_reader_role, webhook_certificate_role
from steersman.rbac.role import cluster_role, policy_rules
from steersman.rbac.users import editor_role, viewer_role

__all__ = [
    "Access",
    "Findings",
    "accesses",
    "cluster_role",
    "compare",
    "editor_role",
    "leader_election_role",
    "metrics_reader_role",
    "policy_rules",
    "viewer_role",
    "webhook_certificate_role",
]
