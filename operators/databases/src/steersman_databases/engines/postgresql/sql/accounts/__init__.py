"""Accounts of PostgreSQL: ownership, grants, revocation, verifiers."""
