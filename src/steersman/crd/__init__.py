"""Custom resource definitions from Python types: one class is the schema, the defaults and the documentation."""

from steersman.crd.definition import definition
from steersman.crd.schema import SchemaError, schema_of

__all__ = ["SchemaError", "definition", "schema_of"]
