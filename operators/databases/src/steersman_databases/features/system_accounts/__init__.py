"""Accounts that the operator and the members use."""
