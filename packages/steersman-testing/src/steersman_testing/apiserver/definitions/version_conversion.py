"""Conversion of objects to the versions of their managers.

Source: ``pkg/util/managedfields/internal/versionconverter.go`` of ``k8s.io/apimachinery``.
"""

from __future__ import annotations

from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.fields.typed import validate_object
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.shapes import SchemaShape, Shape
from steersman_testing.apiserver.values import JsonObject


def convert_object(
    conversion: VersionConverter, kind: ServedKind, api_version: str, obj: JsonObject
) -> tuple[JsonObject, Shape] | None:
    """Return ``obj`` and its shape in ``api_version``.

    None if the definition does not have the version.

    Raises:
        ApiError: 500, the converted object does not match the schema.
        PendingWebhook: a webhook must be called first.
    """
    group, _, version = api_version.rpartition("/")
    versions = kind.versions
    if versions is None or group != kind.resource.group or version not in versions.schemas:
        return None
    schema = versions.schemas[version]
    shape = SchemaShape(schema, root=True)
    found = conversion.convert(versions, obj, api_version)
    validate_object(found, schema, shape)
    return found, shape
