"""Authentication by tokens, and authorization by RBAC."""
