"""Webhooks, one module per kind."""
