"""Admission: the webhooks that are asked about a write, and what they may be configured to."""
