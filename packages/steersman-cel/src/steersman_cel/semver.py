"""Semantic versions in CEL.

Source: ``github.com/blang/semver/v4``, ``pkg/cel/library/semverlib.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import re

from steersman_cel.urls import go_quote

_UINT64 = range(2**64)
_NUMBERS = ("major", "minor", "patch")


def parse_version(text: str, normalize: bool = False) -> str:
    """Validate a semantic version, and return it without its build metadata.

    ``normalize`` first removes a leading ``v`` and leading zeros, and adds a missing minor or patch version.

    Raises:
        ValueError: ``text`` is not a semantic version.
    """
    normalized = _normalize(text) if normalize else text
    if not normalized:
        raise ValueError("Version string empty")
    parts = normalized.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, dash, before = rest.partition("-")
    for name, number in zip(_NUMBERS, (*parts[:2], patch), strict=True):
        _check_number(name, number)
    _check_identifiers(before.split(".") if dash else [], "prerelease", "Prerelease")
    _check_identifiers(build.split(".") if plus else [], "build meta data", "Build meta data")
    return normalized.removesuffix(plus + build) if plus else normalized


def _normalize(text: str) -> str:
    core, separator, rest = re.sub("^v", "", text), "", ""
    if found := re.search("[-+]", core):
        core, separator, rest = core[: found.start()], found[0], core[found.end() :]
    numbers = [n.lstrip("0") or "0" if n else n for n in core.split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + separator + rest


def _check_number(name: str, number: str) -> None:
    if not re.fullmatch("[0-9]*", number):
        raise ValueError(f"Invalid character(s) found in {name} number {go_quote(number)}")
    if len(number) > 1 and number[0] == "0":
        raise ValueError(f"{name.capitalize()} number must not contain leading zeroes {go_quote(number)}")
    if not number:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    if int(number) not in _UINT64:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(number)}: value out of range")


def _check_identifiers(identifiers: list[str], name: str, title: str) -> None:
    for part in identifiers:
        if not part:
            raise ValueError(f"{title} is empty")
        if not re.fullmatch("[0-9A-Za-z-]+", part):
            raise ValueError(f"Invalid character(s) found in {name} {go_quote(part)}")
        if name == "prerelease" and re.fullmatch("0[0-9]+", part):
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(part)}")


def version_parts(version: str) -> tuple[list[int], list[str]]:
    """The three numbers and the pre-release identifiers of a version."""
    core, _, before = version.partition("-")
    return [int(n) for n in core.split(".")], before.split(".") if before else []


def compare_versions(left: str, right: str) -> int:
    """Compare two versions: -1, 0 or 1."""
    (numbers, before), (others, other_before) = version_parts(left), version_parts(right)
    if numbers != others:
        return 1 if numbers > others else -1
    if not before or not other_before:
        return bool(other_before) - bool(before)
    for one, two in zip(before, other_before, strict=False):
        if one != two:
            return _compare_identifiers(one, two)
    return (len(before) > len(other_before)) - (len(before) < len(other_before))


def _compare_identifiers(one: str, two: str) -> int:
    if one.isdigit() and two.isdigit():
        return 1 if int(one) > int(two) else -1
    if one.isdigit() != two.isdigit():
        return -1 if one.isdigit() else 1
    return 1 if one > two else -1
