"""Compares a role with the permissions that an operator needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from steersman.controller import Permission


class ResourceAccess(Struct, frozen=True, order=True):
    """One verb on one resource, such as ``deployments/status``.

    An empty name means all objects.
    """

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        only = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{only}"


class RoleComparison(Struct, frozen=True):
    """Differences between a role and the needed permissions.

    Attributes:
        missing: needed, but not granted.
        superfluous: granted, but not needed. Wildcards are always superfluous.
    """

    missing: tuple[ResourceAccess, ...]
    superfluous: tuple[ResourceAccess, ...]


def resource_accesses(permissions: Iterable[Permission]) -> set[ResourceAccess]:
    """The accesses that ``permissions`` consist of."""
    found: set[ResourceAccess] = set()
    for permission in permissions:
        resource = permission.resource
        name = f"{resource.plural}/{permission.subresource}" if permission.subresource else resource.plural
        found |= {
            ResourceAccess(resource.group, name, v, n) for v in permission.verbs for n in permission.names or ("",)
        }
    return found


def compare_role(rules: Iterable[Mapping[str, Any]], needed: Iterable[ResourceAccess]) -> RoleComparison:
    """Compare policy rules in wire form with the ``needed`` accesses.

    Several missing objects of one resource are reported as one access. Rules for non-resource URLs are ignored.
    """
    resource_rules = [rule for rule in rules if rule.get("resources")]
    needed_accesses = set(needed)
    missing = {a for a in needed_accesses if not any(_grants(rule, a) for rule in resource_rules)}
    superfluous = {
        a for rule in resource_rules for a in _granted_accesses(rule) if not _is_needed(a, needed_accesses)
    }
    return RoleComparison(tuple(sorted(_merge_object_names(missing))), tuple(sorted(superfluous)))


def _merge_object_names(missing: set[ResourceAccess]) -> set[ResourceAccess]:
    """Replace several names of one resource by an access to all objects."""
    counts = Counter((a.group, a.resource, a.verb) for a in missing)
    return {
        ResourceAccess(*target) if count > 1 else a
        for target, count in counts.items()
        for a in _matching(missing, target)
    }


def _matching(found: set[ResourceAccess], target: tuple[str, str, str]) -> set[ResourceAccess]:
    return {a for a in found if (a.group, a.resource, a.verb) == target}


def _grants(rule: Mapping[str, Any], access: ResourceAccess) -> bool:
    names = rule.get("resourceNames") or ()
    if names and access.name not in names:
        return False
    selectors = ((rule.get("apiGroups") or (), access.group), (rule["verbs"], access.verb))
    return all("*" in values or value in values for values, value in selectors) and _matches_resource(
        rule["resources"], access.resource
    )


def _matches_resource(resources: Iterable[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return any(r in ("*", resource) or (slash and r == f"*/{subresource}") for r in resources)


def _granted_accesses(rule: Mapping[str, Any]) -> Iterator[ResourceAccess]:
    for group in rule.get("apiGroups") or ():
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield ResourceAccess(group, resource, verb, name)


def _is_needed(granted: ResourceAccess, needed: set[ResourceAccess]) -> bool:
    if "*" in (granted.group, granted.verb) or granted.resource.startswith("*"):
        return False
    if granted in needed:
        return True
    # A rule for all objects covers accesses to some. A rule for one object is part of an access to all.
    same = (granted.group, granted.resource, granted.verb)
    return any((a.group, a.resource, a.verb) == same and (not granted.name or not a.name) for a in needed)
