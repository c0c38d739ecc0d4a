"""Roles from what the declared controllers need, and nothing beyond. Source: "Using RBAC Authorization"."""

from steersman.rbac.role import cluster_role, policy_rules

__all__ = ["cluster_role", "policy_rules"]
