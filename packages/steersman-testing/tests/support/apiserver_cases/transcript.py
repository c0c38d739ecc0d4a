"""Transcripts of requests and responses that can be compared between servers.

Values that a server chooses are masked: UIDs, versions, times, generated names, addresses and tokens. A mask such as
``<uid 1>`` or ``<version 3>`` shows which values are equal. Everything else stays verbatim.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from apiserver_cases.api import Json
from steersman.client import HttpRequest
from steersman.client.transport import HttpResponse, Transport

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# Most texts have nothing to mask but audiences and suffixes.
_DIGIT = re.compile(r"\d")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"\b10\.\d+\.\d+\.\d+\b")
# Address of the webhooks of a case.
_PORT = re.compile(r"(?<=https://localhost:)\d+")
# Errors have versions: "too old resource version: 3 (7)", "… match the ResourceVersion in record (8)".
_QUOTED_VERSION = re.compile(
    r"(resource ?version: |current: |\bin record \(|precondition \(|version: <number> \()\d+", re.IGNORECASE
)
_REVIEW_PATHS = ("reviews", "/token")
_SECRETS = {"token", "continue"}
# Webhooks in memory have no certificate.
_IGNORED_FIELDS = {"caBundle", "f:caBundle", "serverAddressByClientCIDRs", "storageVersionHash"}
_AUDIENCE = re.compile(r"https://(kubernetes\.default\.svc|127\.0\.0\.1:\d+/)(?=\"|$)")
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
# Part of the prefix of a generated name that is kept.
_MAX_PREFIX = 58


@dataclass(slots=True)
class Masks:
    """Masks for the values of one server. Equal values have the same mask."""

    _uids: dict[str, str] = field(default_factory=dict[str, str])
    _versions: dict[str, str] = field(default_factory=dict[str, str])
    _prefixes: set[str] = field(default_factory=set[str])

    def mask(self, value: Any) -> Any:
        """Return a masked JSON value."""
        if isinstance(value, dict):
            return self._mask_object(cast("Json", value))
        if isinstance(value, list):
            return [self.mask(v) for v in cast("list[Any]", value)]
        return self.mask_text(value) if isinstance(value, str) else value

    def mask_text(self, text: str) -> str:
        """Return a text with masked values."""
        if numbered := _DIGIT.search(text) is not None:
            text = _TIME.sub("<time>", text)
            text = _UID.sub(lambda found: self._uids.setdefault(found[0], f"<uid {len(self._uids) + 1}>"), text)
            text = _PORT.sub("<port>", _ADDRESS.sub("<address>", text))
        text = _AUDIENCE.sub("<audience>", text)
        for prefix in self._prefixes:
            text = re.sub(rf"({re.escape(prefix[:_MAX_PREFIX])}){_SUFFIX}\b", r"\1<suffix>", text)
        for _ in range(2 if numbered else 0):
            text = _QUOTED_VERSION.sub(r"\1<number>", text)
        return text

    def _mask_object(self, value: Json) -> Json:
        if isinstance(prefix := value.get("generateName"), str) and prefix:
            self._prefixes.add(prefix)
        # The managed fields of an ownerReference have a key with its UID.
        return {
            self.mask_text(key) if key.startswith("k:") else key: self._mask_field(key, value[key], value)
            for key in sorted(value.keys() - _IGNORED_FIELDS)
        }

    def _mask_field(self, key: str, value: Any, parent: Json) -> Any:
        if key == "resourceVersion" and isinstance(value, str):
            # A list and a bookmark have the version of the server, which other objects change.
            if "name" not in parent and "uid" not in parent:
                return "<version>"
            return self._versions.setdefault(value, f"<version {len(self._versions) + 1}>")
        if key == "nodePort":
            return "<port>"
        if key == "verbs" and isinstance(value, list):
            return sorted(cast("list[str]", value))
        if key == "resources" and isinstance(value, list) and "groupVersion" in parent:
            return sorted(cast("list[Json]", self.mask(value)), key=lambda r: r["name"])
        if key in _SECRETS and isinstance(value, str) and value:
            return f"<{key}>"
        if key == "managedFields" and isinstance(value, list):
            entries = cast("list[Json]", self.mask(value))
            return sorted(entries, key=lambda e: json.dumps(e, sort_keys=True))
        return self.mask(value)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One masked request and its response. ``code`` is 0 if a watch was opened."""

    request: str
    code: int
    response: Any


@dataclass(frozen=True, slots=True)
class _RawExchange:
    user: str
    request: HttpRequest
    code: int
    response: bytes

    def repeats_request_of(self, other: _RawExchange) -> bool:
        """Return True if this request repeats ``other``."""
        return self.code != 0 and _is_polled(self.request) and self.user == other.user and _same(self, other)


class Transcript:
    """Requests of one case, their users and their responses."""

    def __init__(self) -> None:
        self._raw: list[_RawExchange] = []

    def record(self, transport: Transport, user: str = "") -> RecordingTransport:
        """Return a transport that records the exchanges of a user."""
        return RecordingTransport(
            transport, lambda request, code, answer: self._append(_RawExchange(user, request, code, answer))
        )

    def _append(self, raw: _RawExchange) -> None:
        if self._raw and raw.repeats_request_of(self._raw[-1]):
            self._raw.pop()
        self._raw.append(raw)

    def exchanges(self) -> list[Exchange]:
        """Return all exchanges in order, masked. A polled request counts once."""
        masks = Masks()
        return [_exchange(raw, masks) for raw in self._raw]


class RecordingTransport:
    """Transport that reports each request, HTTP status and response.

    The status is 0 for a line of a watch.
    """

    def __init__(self, transport: Transport, record: Callable[[HttpRequest, int, bytes], None]) -> None:
        self._transport = transport
        self._record = record

    async def request(self, request: HttpRequest) -> HttpResponse:
        response = await self._transport.request(request)
        self._record(request, response.status, response.body)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._transport.stream(request) as lines:
            yield self._record_lines(request, lines)

    async def _record_lines(self, request: HttpRequest, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            self._record(request, 0, line)
            yield line

    async def close(self) -> None:
        """Do nothing. The owner closes the connection."""


def _is_polled(request: HttpRequest) -> bool:
    """Return True if a case may poll the request, which changes nothing."""
    return request.method == "GET" or "dryRun" in request.query or request.path.endswith("reviews")


def _same(one: _RawExchange, other: _RawExchange) -> bool:
    left, right = one.request, other.request
    return (left.method, left.path, left.query, left.body) == (right.method, right.path, right.query, right.body)


def _exchange(raw: _RawExchange, masks: Masks) -> Exchange:
    request = raw.request
    body = masks.mask(_parsed(request.body)) if request.body else None
    query = {k: v for k, v in request.query.items() if k not in ("resourceVersion", "continue")}
    path = masks.mask_text(request.path)
    request_key = json.dumps([raw.user, request.method, path, query, body, request.accept], sort_keys=True)
    response = _parsed(raw.response)
    if request.method == "POST" and request.path.endswith(_REVIEW_PATHS) and isinstance(response, dict):
        # Managed fields of reviews are not compared.
        cast("Json", response).get("metadata", {}).pop("managedFields", None)
    return Exchange(request_key, raw.code, masks.mask(response))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def difference(left: Sequence[Exchange], right: Sequence[Exchange], *, wording: bool = False) -> str:
    """Return the first difference between two transcripts.

    Responses must have the same code and content. Errors must have the same code and reason. Empty without
    differences.

    Args:
        wording: whether errors must have the same message as well.
    """
    for left_exchange, right_exchange in zip(left, right, strict=False):
        if left_exchange.request != right_exchange.request:
            return f"asked\n    {left_exchange.request}\n  and\n    {right_exchange.request}"
        codes = (
            ""
            if left_exchange.code == right_exchange.code
            else f"\n    code: {left_exchange.code} != {right_exchange.code}"
        )
        pair = (
            (left_exchange.response, right_exchange.response)
            if wording
            else (_comparable_response(left_exchange), _comparable_response(right_exchange))
        )
        if (found := "\n".join(_differences(*pair, ""))) or codes:
            return f"{left_exchange.request}{codes}\n{found}"
    if len(left) != len(right):
        return f"{len(left)} and {len(right)} exchanges"
    return ""


def outcome_difference(left: Sequence[Exchange], right: Sequence[Exchange]) -> str:
    """Return the first difference of codes and common reasons."""
    for left_exchange, right_exchange in zip(left, right, strict=False):
        reasons: list[str] = [
            _comparable_response(e)["reason"] for e in (left_exchange, right_exchange) if e.code >= 400
        ]
        if left_exchange.code != right_exchange.code or len(set(filter(None, reasons))) > 1:
            codes = f"{left_exchange.code} {reasons[:1]} != {right_exchange.code} {reasons[1:]}"
            return f"{left_exchange.request}\n    {codes}"
    return "" if len(left) == len(right) else f"{len(left)} and {len(right)} exchanges"


def _comparable_response(exchange: Exchange) -> Any:
    """Return the reason of an error, or the response."""
    if exchange.code < 400:
        return exchange.response
    response = exchange.response
    return {"reason": cast("Json", response).get("reason", "")} if isinstance(response, dict) else {"reason": ""}


def _differences(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        left, right = cast("Json", ours), cast("Json", theirs)
        return [
            line
            for key in sorted(left.keys() | right.keys())
            for line in _differences(left.get(key, "<absent>"), right.get(key, "<absent>"), f"{path}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        before, after = cast("list[Any]", ours), cast("list[Any]", theirs)
        if len(before) == len(after):
            pairs = enumerate(zip(before, after, strict=True))
            return [line for i, (a, b) in pairs for line in _differences(a, b, f"{path}[{i}]")]
    # In Python True == 1, but not in JSON.
    alike = ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)
    return [] if alike else [f"    {path or '.'}: {_short(ours)} != {_short(theirs)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 400 else f"{text[:400]}…"
