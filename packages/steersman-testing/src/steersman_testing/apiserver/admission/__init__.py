"""Admission: plugins, webhooks and their configurations."""
