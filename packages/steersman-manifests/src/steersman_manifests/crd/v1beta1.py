"""Definitions in ``apiextensions.k8s.io/v1beta1``.

Source: ``pkg/apis/apiextensions/v1beta1`` of ``k8s.io/apiextensions-apiserver``; it was removed in Kubernetes 1.22.
"""

from __future__ import annotations

from typing import Any, cast

from steersman_manifests.crd.rules import RULES, Schema

# Name of each version field at the top level.
_TOP_LEVEL_FIELDS = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
}


def to_v1beta1(manifest: dict[str, Any]) -> dict[str, Any]:
    """``manifest`` (v1) as v1beta1. CEL rules and selectable fields are left out."""
    spec: dict[str, Any] = {k: v for k, v in manifest["spec"].items() if k not in ("versions", "conversion")}
    versions = [_version_to_v1beta1(v) for v in manifest["spec"]["versions"]]
    for field, name in _TOP_LEVEL_FIELDS.items():
        # The API server rejects fields that are equal in all versions but not at the top level.
        if all(v[field] == versions[0][field] for v in versions):
            spec[name] = versions[0][field]
            for version in versions:
                del version[field]
    spec |= {"version": versions[0]["name"], "versions": versions, "preserveUnknownFields": False}
    if "conversion" in manifest["spec"]:
        spec["conversion"] = _conversion_to_v1beta1(manifest["spec"]["conversion"])
    return {**manifest, "apiVersion": "apiextensions.k8s.io/v1beta1", "spec": spec}


def _version_to_v1beta1(version: dict[str, Any]) -> dict[str, Any]:
    wire = {k: v for k, v in version.items() if k != "selectableFields"}
    wire["schema"] = without_rules(version["schema"])
    wire["additionalPrinterColumns"] = [
        {("JSONPath" if k == "jsonPath" else k): v for k, v in column.items()}
        for column in version["additionalPrinterColumns"]
    ]
    return wire


def _conversion_to_v1beta1(conversion: dict[str, Any]) -> dict[str, Any]:
    webhook = conversion["webhook"]
    return {
        "strategy": conversion["strategy"],
        "webhookClientConfig": webhook["clientConfig"],
        "conversionReviewVersions": webhook["conversionReviewVersions"],
    }


def without_rules(schema: Any) -> Any:
    """A copy of ``schema`` without CEL rules at any level."""
    if isinstance(schema, list):
        return [without_rules(s) for s in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    keywords = cast("Schema", schema)
    return {
        keyword: _keyword_without_rules(keyword, value) for keyword, value in keywords.items() if keyword != RULES
    }


def _keyword_without_rules(keyword: str, value: Any) -> Any:
    if keyword == "properties":
        # Fields may have the names of keywords.
        return {name: without_rules(inner) for name, inner in value.items()}
    return value if keyword in ("default", "example", "enum") else without_rules(value)
