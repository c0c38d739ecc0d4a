"""What a role lacks, and what it grants in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from steersman.controller import Permission


class Access(Struct, frozen=True, order=True):
    """One verb on one resource (``deployments/status``); on one object by its name, or on any if that is empty."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        only = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{only}"


class Findings(Struct, frozen=True):
    """How a role compares with what an operator needs.

    Attributes:
        missing: what is needed and not granted.
        superfluous: what is granted and not needed; a wildcard always is, since it grants what nobody named.
    """

    missing: tuple[Access, ...]
    superfluous: tuple[Access, ...]


def accesses(permissions: Iterable[Permission]) -> set[Access]:
    """Declared permissions, one by one."""
    found: set[Access] = set()
    for permission in permissions:
        of = permission.resource
        name = f"{of.plural}/{permission.subresource}" if permission.subresource else of.plural
        found |= {Access(of.group, name, v, n) for v in permission.verbs for n in permission.names or ("",)}
    return found


def compare(rules: Iterable[Mapping[str, Any]], needed: Iterable[Access]) -> Findings:
    """What ``rules``, in wire form, lack of what is ``needed``, and what they grant beyond it.

    Where several objects of a resource are out of reach, they are told as one access. Rules on URLs that are no
    resources are passed over.
    """
    told = [rule for rule in rules if rule.get("resources")]
    wanted = set(needed)
    missing = {a for a in wanted if not any(_grants(rule, a) for rule in told)}
    superfluous = {a for rule in told for a in _granted(rule) if not _is_used(a, wanted)}
    return Findings(tuple(sorted(_joined(missing))), tuple(sorted(superfluous)))


def _joined(missing: set[Access]) -> set[Access]:
    """``missing`` without the names of objects where there are several."""
    counts = Counter((a.group, a.resource, a.verb) for a in missing)
    return {Access(*place) if count > 1 else a for place, count in counts.items() for a in _of(missing, place)}


def _of(found: set[Access], place: tuple[str, str, str]) -> set[Access]:
    return {a for a in found if (a.group, a.resource, a.verb) == place}


def _grants(rule: Mapping[str, Any], access: Access) -> bool:
    names = rule.get("resourceNames") or ()
    if names and access.name not in names:
        return False
    told = ((rule.get("apiGroups") or (), access.group), (rule["verbs"], access.verb))
    return all("*" in values or value in values for values, value in told) and _names(
        rule["resources"], access.resource
    )


def _names(resources: Iterable[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return any(r in ("*", resource) or (slash and r == f"*/{subresource}") for r in resources)


def _granted(rule: Mapping[str, Any]) -> Iterator[Access]:
    for group in rule.get("apiGroups") or ():
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield Access(group, resource, verb, name)


def _is_used(granted: Access, needed: set[Access]) -> bool:
    if "*" in (granted.group, granted.verb) or granted.resource.startswith("*"):
        return False
    if granted in needed:
        return True
    # A rule on all objects serves those who need some; one on some serves those who need all, with others.
    same = (granted.group, granted.resource, granted.verb)
    return any((a.group, a.resource, a.verb) == same and (not granted.name or not a.name) for a in needed)
