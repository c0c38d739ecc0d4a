"""Groups of the Kubernetes community, whose definitions say that they were approved.

Source: ``pkg/apihelpers/helpers.go`` of ``k8s.io/apiextensions-apiserver``; KEP-1111.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from steersman_testing.apiserver.failures import FieldError, invalid_value, required
from steersman_testing.apiserver.values import JsonObject, map_at

_ANNOTATION = "api-approved.kubernetes.io"
_PLACE = f"metadata.annotations[{_ANNOTATION}]"
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"
_REASONS = {
    "missing": "MissingAnnotation",
    "bypassed": "UnapprovedAnnotation",
    "approved": "ApprovedAnnotation",
    "invalid": "InvalidAnnotation",
}


def is_protected(group: str) -> bool:
    """Whether definitions in ``group`` need an approval."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def _annotation(definition: JsonObject) -> str:
    return map_at(definition.get("metadata"), "annotations").get(_ANNOTATION, "")


def _approval(definition: JsonObject) -> tuple[str, str]:
    """What the annotation of ``definition`` says, and how the real server tells of it."""
    found = _annotation(definition)
    needed = f'protected groups must have approval annotation "{_ANNOTATION}"'
    if not found:
        return "missing", f"{needed}, {_SEE}"
    if found.startswith("unapproved"):
        return "bypassed", f'not approved: "{found}"'
    parts = urlsplit(found)
    if parts.scheme and parts.netloc:
        return "approved", f"approved in {found}"
    return "invalid", f'{needed} with either a URL or a reason starting with "unapproved", {_SEE}'


def approval_errors(new: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """What is wrong with the annotation of ``new``; where ``old`` had the same state, nothing is."""
    if not is_protected(map_at(new, "spec").get("group", "")):
        return
    state, text = _approval(new)
    if old is not None and _approval(old)[0] == state:
        return
    if state == "missing":
        yield required(_PLACE, text)
    elif state == "invalid":
        yield invalid_value(_PLACE, _annotation(new), text)


def approval_condition(definition: JsonObject) -> JsonObject | None:
    """The condition that tells of the approval; None in groups that need none."""
    if not is_protected(map_at(definition, "spec").get("group", "")):
        return None
    state, text = _approval(definition)
    return {
        "type": "KubernetesAPIApprovalPolicyConformant",
        "status": "True" if state == "approved" else "False",
        "reason": _REASONS[state],
        "message": text,
    }
