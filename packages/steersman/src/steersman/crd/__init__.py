"""Custom resource definitions from Python types: one class is the schema, the defaults and the documentation."""

from steersman.crd.change import Change
from steersman.crd.changes import breaking_changes
from steersman.crd.conversion import ConversionWebhook
from steersman.crd.definition import definition, definitions
from steersman.crd.errors import SchemaError
from steersman.crd.objects import violations
from steersman.crd.schema import schema_of

__all__ = [
    "Change",
    "ConversionWebhook",
    "SchemaError",
    "breaking_changes",
    "definition",
    "definitions",
    "schema_of",
    "violations",
]
