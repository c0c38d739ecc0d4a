"""Operator leader-operator."""
