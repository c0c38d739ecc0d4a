"""Validation of values against OpenAPI schemas, list types and CEL rules."""
