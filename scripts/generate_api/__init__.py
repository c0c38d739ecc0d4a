"""Generates the package ``steersman.api`` from the OpenAPI v3 documents of Kubernetes."""
