"""Custom resource definitions from Python types.

``definition`` builds the ``CustomResourceDefinition`` of a kind from its class. Type hints become the structural
schema, markers (``Field``, ``@schema``, ``Rule``) become its keywords and CEL rules, default values become defaults,
and docstrings become descriptions. A declaration that the API server would reject raises ``SchemaError``.

``violations`` validates an object against the schema and the rules of its class, without a server.

``breaking_changes`` compares two versions of a definition. It reports each change that breaks stored objects,
manifests or clients.

The extra ``steersman[cel]`` type-checks rules and estimates their cost. Without it the API server checks them.
"""

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
