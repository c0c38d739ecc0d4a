"""The result type of ``breaking_changes``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

BreakingChangeRule = Literal[
    "definition-removed",
    "group-changed",
    "scope-changed",
    "name-changed",
    "version-removed",
    "stored-version-removed",
    "subresource-removed",
    "scale-path-changed",
    "selectable-field-removed",
    "field-removed",
    "type-changed",
    "null-refused",
    "unknown-fields-dropped",
    "required-added",
    "default-changed",
    "enum-narrowed",
    "bound-tightened",
    "pattern-changed",
    "format-changed",
    "list-type-changed",
    "map-type-changed",
    "rule-tightened",
    "validation-changed",
]


class BreakingChange(Struct, frozen=True, kw_only=True):
    """A change that breaks manifests, clients or stored objects.

    Attributes:
        definition: name of the definition. Empty if only one is compared.
        version: version of the kind. Empty for a change that affects all versions.
        field: path of the field, such as ``.spec.ports[*].name``. Empty if no field changes.
        rule: machine-readable reason.
        message: the change and its consequence.
        fix: a change that does not break users.
    """

    definition: str = ""
    version: str = ""
    field: str = ""
    rule: BreakingChangeRule
    message: str
    fix: str

    def __str__(self) -> str:
        location = " ".join(part for part in (self.definition, self.version, self.field) if part)
        return f"{location}: {self.message} [{self.rule}]\n    {self.fix}".removeprefix(": ")
