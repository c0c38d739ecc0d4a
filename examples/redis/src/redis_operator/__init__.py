"""Operator redis-operator."""
