"""Operator monitoring-operator."""
