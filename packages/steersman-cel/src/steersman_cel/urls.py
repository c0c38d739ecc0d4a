"""URL parser with the rules of Go.

Source: ``net/url`` of Go: ``ParseRequestURI``, ``Parse``, ``EscapedPath``, ``Query``.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote, unquote_plus

import msgspec

_Mode = Literal["path", "host", "zone", "rest"]

_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_HOST_CHARACTER = re.compile(r"[A-Za-z0-9!$&'()*+,;=:\[\]<>\"\-_.~\x80-\U0010ffff]")
_PATH_SAFE = "-_.~$&+,/:;=@"
_ENCODED_PATH = re.compile(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*")
_USERINFO = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


class Url(NamedTuple):
    """A parsed URL. Each part may be empty.

    Attributes:
        scheme: scheme in lower case.
        authority: user, host and port, unchanged.
        host: host and port, unescaped.
        path: escaped path.
        query: query, unchanged.
    """

    scheme: str
    authority: str
    host: str
    path: str
    query: str

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        host = self.host[: -len(self.port) - 1] if self._has_port() else self.host
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        """The digits after the host."""
        return self.host.rpartition(":")[2] if self._has_port() else ""

    def _has_port(self) -> bool:
        return re.search(r":\d*$", self.host, re.ASCII) is not None

    def values(self) -> dict[str, list[str]]:
        """Return the values of the query by key. Malformed pairs are skipped."""
        found: dict[str, list[str]] = {}
        for pair in self.query.split("&"):
            if pair and ";" not in pair and "%" not in _ESCAPE.sub("", pair):
                key, _, value = pair.partition("=")
                found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
        return found


def parse_url(text: str) -> Url:
    """Parse a URL.

    Args:
        text: absolute URL or absolute path, with an optional fragment.

    Raises:
        ValueError: the URL is invalid. The message is that of Go.
    """
    check_request_uri(text)
    rest, _, fragment = text.partition("#")
    try:
        _check_escapes(fragment, "rest")
        return _parse(rest, request=False)
    except ValueError as error:
        raise _parse_error(text, error) from None


def check_request_uri(text: str) -> None:
    """Check that ``text`` is a request URI. It cannot have a fragment.

    Raises:
        ValueError: the URI is invalid. The message is that of Go.
    """
    try:
        _parse(text, request=True)
    except ValueError as error:
        raise _parse_error(text, error) from None


def _parse_error(text: str, error: ValueError) -> ValueError:
    return ValueError(f"parse {go_quote(text)}: {error}")


def go_quote(text: str) -> str:
    """Quote ``text`` like Go."""
    return msgspec.json.encode(text).decode()


def _parse(text: str, *, request: bool) -> Url:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError("net/url: invalid control character in URL")
    if not text and request:
        raise ValueError("empty url")
    if text == "*":
        return Url("", "", "", "*", "")
    scheme, rest = _split_scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "", "", "", query)
        if request:
            raise ValueError("invalid URI for request")
    authority, host = "", ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, rest = rest[2:].partition("/")
        host = _parse_authority(authority)
        rest = slash + rest
    _check_escapes(rest, "path")
    path = rest if _ENCODED_PATH.fullmatch(rest) else quote(unquote(rest), safe=_PATH_SAFE)
    return Url(scheme, authority, host, path, query)


def _split_scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    found = re.match("[A-Za-z][A-Za-z0-9+.-]*:", text)
    return (found[0][:-1].lower(), text[found.end() :]) if found else ("", text)


def _parse_authority(authority: str) -> str:
    user, _, host = authority.rpartition("@")
    found = _parse_host(host)
    if not _USERINFO.fullmatch(user):
        raise ValueError("net/url: invalid userinfo")
    _check_escapes(user, "rest")
    return found


def _parse_host(host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise ValueError("invalid IP-literal")
    if opening == 0:
        return _parse_ip_literal(host)
    name, colon, port = host.partition(":")
    if colon and not re.fullmatch(r"\d*", port, re.ASCII):
        raise ValueError(f"invalid port {go_quote(colon + port)} after host")
    _check_escapes(name, "host")
    return unquote(host)


def _parse_ip_literal(host: str) -> str:
    closing = host.rfind("]")
    if closing < 0:
        raise ValueError("missing ']' in host")
    if not re.fullmatch(r"(:\d*)?", host[closing + 1 :], re.ASCII):
        raise ValueError(f"invalid port {go_quote(host[closing + 1 :])} after host")
    address, percent, zone = host[1:closing].partition("%25")
    _check_escapes(address, "host")
    _check_escapes(zone, "zone")
    literal = unquote(address + percent + zone)
    try:
        found = ipaddress.ip_address(literal)
    except ValueError:
        raise ValueError(f"invalid host: ParseAddr({go_quote(literal)}): unable to parse IP") from None
    if found.version == 4:
        raise ValueError("invalid IP-literal")
    return unquote(host)


def _check_escapes(text: str, mode: _Mode) -> None:
    position = 0
    while position < len(text):
        if text[position] == "%":
            shown = text[position : position + 3]
            found = _ESCAPE.fullmatch(shown)
            # In a host, only non-ASCII characters and the percent sign may be escaped.
            if found is None or (mode == "host" and int(found[1], 16) < 0x80 and shown != "%25"):
                raise ValueError(f"invalid URL escape {go_quote(shown)}")
            position += 3
            continue
        if mode in ("host", "zone") and not _HOST_CHARACTER.fullmatch(text[position]):
            raise ValueError(f"invalid character {go_quote(text[position])} in host name")
        position += 1
