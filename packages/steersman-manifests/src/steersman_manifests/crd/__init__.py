"""Custom resource definitions from Python types.

``definition`` builds the ``CustomResourceDefinition`` of a kind from its class. Type hints become the structural
schema, markers (``Field``, ``@schema``, ``Rule``) become its keywords and CEL rules, default values become defaults,
and docstrings become descriptions. A declaration that the API server would reject raises ``SchemaError``.

``violations`` validates an object against the schema and the rules of its class, without a server.

``breaking_changes`` compares two versions of a definition. It reports each change that breaks stored objects,
manifests or clients.

Rules are type-checked, and their cost is estimated, before the API server does it.
"""

from steersman_manifests.crd.breaking_change import BreakingChange
from steersman_manifests.crd.compatibility import breaking_changes
from steersman_manifests.crd.definition import definition, definitions
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.object_validation import violations
from steersman_manifests.crd.schema import schema_of

__all__ = [
    "BreakingChange",
    "SchemaError",
    "breaking_changes",
    "definition",
    "definitions",
    "schema_of",
    "violations",
]
