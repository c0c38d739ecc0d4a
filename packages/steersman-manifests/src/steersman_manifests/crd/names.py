"""Validation of the names of a kind."""

from __future__ import annotations

import re
from collections import Counter

from steersman.meta import ApiResource
from steersman.meta.custom_resource import ResourceOptions
from steersman_manifests.crd.errors import SchemaError

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_VERSION = re.compile(r"v(?P<major>[1-9][0-9]*)((?P<stability>alpha|beta)(?P<minor>[1-9][0-9]*))?")
_APPROVAL_ANNOTATION = "api-approved.kubernetes.io"


def check_names(resource: ApiResource, options: ResourceOptions) -> None:
    """Check group, version and names as the API server does.

    Raises:
        SchemaError: a name is invalid.
    """
    if not _SUBDOMAIN.fullmatch(resource.group) or len(resource.group) > 253:
        raise SchemaError(f"the group {resource.group!r} is not a domain name: write one such as shop.example.com")
    _check_label("version", resource.version)
    _check_label("plural", resource.plural)
    _check_label("singular", options.singular)
    _check_label("kind", resource.kind.lower())
    _check_label("list_kind", options.list_kind.lower())
    if options.list_kind == resource.kind:
        raise SchemaError(f"kind and list_kind are both {resource.kind!r}: give lists another name")
    for name in options.short_names:
        _check_label("short name", name)
    for name in options.categories:
        _check_label("category", name)
    _check_duplicates(resource, options)
    if _is_protected(resource.group) and not dict(options.annotations).get(_APPROVAL_ANNOTATION):
        raise SchemaError(
            f"the group {resource.group} belongs to the Kubernetes community: use a domain of your own, or set the "
            f"annotation {_APPROVAL_ANNOTATION}"
        )


def version_sort_key(version: str) -> tuple[bool, int, int, int, str]:
    """Sort key for versions in the order of Kubernetes.

    Example: ``v2``, ``v1``, ``v1beta1``, ``v1alpha2``, then all others by name.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return True, 0, 0, 0, version
    stability = {None: 0, "beta": 1, "alpha": 2}[match["stability"]]
    return False, stability, -int(match["major"]), -int(match["minor"] or 0), version


def _check_label(field: str, name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise SchemaError(
            f"the {field} {name!r} is not a valid name: write at most 63 lower-case letters, digits and '-', "
            "starting with a letter"
        )


def _check_duplicates(resource: ApiResource, options: ResourceOptions) -> None:
    for field, names in (("short name", options.short_names), ("category", options.categories)):
        if duplicates := [name for name, count in Counter(names).items() if count > 1]:
            raise SchemaError(f"the {field} {duplicates[0]!r} is declared twice: remove one")
    for name in options.short_names:
        if name in (resource.plural, options.singular):
            raise SchemaError(f"the short name {name!r} is already a name of the kind: remove it")


def _is_protected(group: str) -> bool:
    return group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io")
