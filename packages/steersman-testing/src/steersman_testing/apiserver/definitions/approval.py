"""Approval annotation of definitions in groups of the Kubernetes community.

Source: ``pkg/apihelpers/helpers.go`` of ``k8s.io/apiextensions-apiserver``; KEP-1111.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value, required_value
from steersman_testing.apiserver.values import JsonObject, get_object

_ANNOTATION = "api-approved.kubernetes.io"
_ANNOTATION_PATH = f"metadata.annotations[{_ANNOTATION}]"
_KEP_REFERENCE = "see https://github.com/kubernetes/enhancements/pull/1111"
_REASONS = {
    "missing": "MissingAnnotation",
    "bypassed": "UnapprovedAnnotation",
    "approved": "ApprovedAnnotation",
    "invalid": "InvalidAnnotation",
}


def is_protected_group(group: str) -> bool:
    """Return True if definitions in ``group`` need an approval."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def _annotation(definition: JsonObject) -> str:
    return get_object(definition.get("metadata"), "annotations").get(_ANNOTATION, "")


def _approval_state(definition: JsonObject) -> tuple[str, str]:
    """Return the state of the annotation and its message."""
    found = _annotation(definition)
    needed = f'protected groups must have approval annotation "{_ANNOTATION}"'
    if not found:
        return "missing", f"{needed}, {_KEP_REFERENCE}"
    if found.startswith("unapproved"):
        return "bypassed", f'not approved: "{found}"'
    parts = urlsplit(found)
    if parts.scheme and parts.netloc:
        return "approved", f"approved in {found}"
    return "invalid", f'{needed} with either a URL or a reason starting with "unapproved", {_KEP_REFERENCE}'


def approval_errors(new: JsonObject, old: JsonObject | None) -> Iterator[InvalidFieldError]:
    """Yield the errors of the annotation.

    An unchanged state is valid.
    """
    if not is_protected_group(get_object(new, "spec").get("group", "")):
        return
    state, text = _approval_state(new)
    if old is not None and _approval_state(old)[0] == state:
        return
    if state == "missing":
        yield required_value(_ANNOTATION_PATH, text)
    elif state == "invalid":
        yield invalid_value(_ANNOTATION_PATH, _annotation(new), text)


def approval_condition(definition: JsonObject) -> JsonObject | None:
    """Return the condition of the approval, or None.

    Unprotected groups have no condition.
    """
    if not is_protected_group(get_object(definition, "spec").get("group", "")):
        return None
    state, text = _approval_state(definition)
    return {
        "type": "KubernetesAPIApprovalPolicyConformant",
        "status": "True" if state == "approved" else "False",
        "reason": _REASONS[state],
        "message": text,
    }
