"""Vertical scaling: record use, recommend resources, apply them."""
