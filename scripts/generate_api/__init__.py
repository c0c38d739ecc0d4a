"""Writes the package ``steersman.api``: the built-in kinds as typed Python, from the API server's OpenAPI v3."""
