"""Roles from what the declared controllers need, and nothing beyond. Source: "Using RBAC Authorization"."""

from steersman.rbac.endpoints import leader_election_role, metrics_reader_role
from steersman.rbac.role import cluster_role, policy_rules

__all__ = ["cluster_role", "leader_election_role", "metrics_reader_role", "policy_rules"]
