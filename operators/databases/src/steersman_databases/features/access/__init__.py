"""RBAC and network policies of instances."""
