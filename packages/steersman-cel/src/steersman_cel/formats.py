"""Formats of strings and numbers in schemas of custom resources.

Dashes in names are ignored, so ``date-time`` equals ``datetime``. Source: ``pkg/apiserver/validation/
formats.go`` of ``k8s.io/apiextensions-apiserver`` and ``pkg/validation/strfmt`` of ``k8s.io/kube-openapi``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from email.utils import getaddresses
from typing import Any

from steersman_cel.urls import check_request_uri

_HEX = "[0-9a-fA-F]"
_OCTET = r"(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)
_GO_DURATION = re.compile(r"[-+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_HUMAN_DURATION = re.compile(r"(\d+)\s*([A-Za-zµ]+)")
_UNITS = (
    *(("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min")),
    *(("h", "hr", "hour"), ("d", "day"), ("w", "wk", "week")),
)
_SYMBOL = r"[^\W_]|[^\x00-\x7f]"
_HOST_LABEL = rf"(?:{_SYMBOL})(?:(?:{_SYMBOL}|-){{0,61}}(?:{_SYMBOL}))?"
_HOSTNAME = re.compile(
    rf"(?:{_SYMBOL})(?:-?(?:{_SYMBOL}){{0,62}})?|(?:{_HOST_LABEL}\.)+(?:[^\W\d_]){{2,63}}", re.UNICODE
)


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _parses(parse: Callable[[str], object], required: str = "") -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return required in text

    return check


def _is_date(text: str) -> bool:
    # ``datetime`` does not support year 0, which is a leap year.
    padded = re.sub("^0000", "2000", text)
    return re.fullmatch(r"\d{4}-\d\d-\d\d", padded, re.ASCII) is not None and _parses(date.fromisoformat)(padded)


def _is_date_time(text: str) -> bool:
    day, separator, rest = text.lower().partition("t")
    found = _TIME.fullmatch(rest.partition("t")[0])
    if not separator or not _is_date(day) or found is None:
        return False
    return found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _is_duration(text: str) -> bool:
    if text in ("0", "+0", "-0") or _GO_DURATION.fullmatch(text):
        return True
    return any(_is_unit(unit.lower()) for _, unit in _HUMAN_DURATION.findall(text))


def _is_unit(unit: str) -> bool:
    return any(unit in variants or unit.startswith(variants[-1]) for variants in _UNITS)


def _is_hostname(text: str) -> bool:
    # RFC 1035: at most 255 octets, and at most 63 per label.
    return (
        _HOSTNAME.fullmatch(text) is not None
        and len(text.encode()) <= 255
        and all(len(p.encode()) <= 63 for p in text.split("."))
    )


def _strip_leading_zeros(text: str) -> str:
    """Remove leading zeros of IPv4 octets. Old versions of Go ignore them."""
    return re.sub(r"(?<![0-9a-fA-F:])0+(?=\d+(\.|/|$))", "", text) if "." in text else text


def _parse_cidr(text: str) -> object:
    if not re.search(r"/\d+$", text):
        raise ValueError("no prefix length")
    return ipaddress.ip_network(_strip_leading_zeros(text), strict=False)


def _is_email(text: str) -> bool:
    found = getaddresses([text])
    local, at, domain = found[0][1].rpartition("@")
    plain = " " not in domain and not domain.endswith(".") and (" " not in local or local.startswith('"'))
    return len(found) == 1 and bool(local and at and domain) and plain


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    issuers = (
        "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
        r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}"
    )
    if not re.fullmatch(issuers, digits):
        return False
    doubled = (int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    return sum((i + 1) * (10 if d == "X" else int(d)) for i, d in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits)) % 10 == 0


def _uuid(version: str = "", variant: str = "") -> Callable[[str], bool]:
    third = f"{version}{_HEX}{{3}}" if version else f"{_HEX}{{4}}"
    fourth = f"{variant}{_HEX}{{3}}" if variant else f"{_HEX}{{4}}"
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}-?{fourth}-?{_HEX}{{12}}")


def _is_name(text: str, max_length: int, pattern: str) -> bool:
    return len(text) <= max_length and re.fullmatch(pattern, text) is not None


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}"),
    "uri": _parses(check_request_uri),
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _parses(lambda text: ipaddress.ip_address(_strip_leading_zeros(text)), "."),
    "ipv6": lambda text: "%" not in text and _parses(ipaddress.ip_address, ":")(text),
    "cidr": _parses(_parse_cidr),
    "mac": _matches(
        rf"{_HEX}{{2}}(?P<mark>[:-]?){_HEX}{{2}}(?:(?P=mark){_HEX}{{2}}){{4}}(?:(?P=mark){_HEX}{{2}}){{0,2}}"
        rf"|{_HEX}{{4}}(?:\.{_HEX}{{4}}){{2,3}}"
    ),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": lambda text: len(text) == 11 and _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}")(text),
    "hexcolor": _matches(f"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "rgbcolor": _matches(rf"rgb\(\s*{_OCTET}\s*,\s*{_OCTET}\s*,\s*{_OCTET}\s*\)"),
    "byte": _matches("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
    "k8sshortname": lambda text: _is_name(text, 63, _LABEL),
    "k8slongname": lambda text: _is_name(text, 253, rf"{_LABEL}(\.{_LABEL})*"),
}
_NUMERIC = {"integer": ("int32", "int64"), "number": ("float", "double")}


def known_format(schema: Mapping[str, Any]) -> str:
    """Return the format of ``schema``. Empty if the API server ignores it."""
    form: str = schema.get("format", "")
    kind = "" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "")
    if kind in _NUMERIC:
        return form if form in _NUMERIC[kind] else ""
    return form if kind in ("", "string") and form.replace("-", "") in _CHECKS else ""


def has_format(text: str, form: str) -> bool:
    """Return True if ``text`` has the format ``form``.

    Unknown formats and those of numbers accept every text.
    """
    check = _CHECKS.get(form.replace("-", ""))
    return check is None or check(text)
