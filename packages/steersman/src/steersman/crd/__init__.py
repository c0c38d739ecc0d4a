"""Custom resource definitions from Python types: one class is the schema, the defaults and the documentation."""

from steersman.crd.breaking_change import BreakingChange
from steersman.crd.compatibility import breaking_changes
from steersman.crd.conversion import ConversionWebhook
from steersman.crd.definition import definition, definitions
from steersman.crd.errors import SchemaError
from steersman.crd.object_validation import violations
from steersman.crd.schema import schema_of

__all__ = [
    "BreakingChange",
    "ConversionWebhook",
    "SchemaError",
    "breaking_changes",
    "definition",
    "definitions",
    "schema_of",
    "violations",
]
