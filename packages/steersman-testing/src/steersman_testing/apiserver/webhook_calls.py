"""Webhook calls of operations that run synchronously.

An operation, such as a create, runs without interruption, but a webhook call takes time. So an operation requests the
response from ``WebhookCaller``. If it is missing, ``PendingWebhook`` aborts the operation before it has stored
anything. ``run`` sends the call, keeps the response and runs the operation again from its start, with the same time
and the same random numbers. The operation then makes the same calls and finds their responses.

If a concurrent request has changed the object, the review differs and the webhook is called again, as the real server
does after a conflict. Responses are kept for one operation only.

Within an operation::

    response = caller.call(client_config, review)  # raises PendingWebhook or WebhookCallFailed

Around it::

    await caller.run(lambda: verbs.create(route, request, user))

Source: ``WebhookClientConfig`` of ``admissionregistration.k8s.io/v1`` and ``apiextensions.k8s.io/v1``.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from steersman.client.config import ClusterConfig
from steersman.client.transport import HttpRequest, HttpResponse
from steersman.client.transport.http import HttpTransport
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.observability.runtime import Clock, Runtime
from steersman_testing.apiserver.values import JsonObject, get_object, is_map
from steersman_testing.virtual_clock import VirtualTimeLoop

T = TypeVar("T")

WebhookHandler = Callable[[JsonObject], Awaitable[JsonObject]]
"""Handles an AdmissionReview or a ConversionReview. Raises ConnectionFailed to be unreachable."""

CONVERSION_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """One call of one webhook.

    Attributes:
        client_config: its WebhookClientConfig in wire form.
        review: the review in wire form, without ``request.uid``.
        timeout_seconds: time limit of the call.
        webhook_name: name of the webhook, because several webhooks may share a URL.
    """

    client_config: JsonObject
    review: JsonObject
    timeout_seconds: float = CONVERSION_TIMEOUT_SECONDS
    webhook_name: str = ""

    @property
    def key(self) -> bytes:
        """Key that is equal for the same review to the same webhook."""
        return msgspec.json.encode((self.webhook_name, self.client_config, self.review))

    @property
    def url(self) -> str:
        """URL of the webhook. A Service has its name within the cluster."""
        return client_config_url(self.client_config)

    @property
    def description(self) -> str:
        """The call as errors of Go describe it."""
        return f'Post "{self.url}?timeout={self.timeout_seconds:.0f}s"'


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """Response of a webhook.

    Attributes:
        uid: UID of the request, which ``review["response"]["uid"]`` must repeat. The caller has to check it.
        review: the review in wire form.
    """

    uid: str
    review: JsonObject


class PendingWebhook(Exception):
    """An operation needs the responses to ``calls``."""

    def __init__(self, calls: Sequence[WebhookCall]) -> None:
        super().__init__(f"a webhook must be called: {', '.join(c.url for c in calls)}")
        self.calls = calls


class WouldBlock(RuntimeError):
    """A webhook call would block a synchronous operation."""


class WebhookCallFailed(Exception):
    """A webhook call failed.

    The text is that of the real server after ``failed to call webhook: ``.
    """


@dataclass(slots=True)
class _Operation:
    """State of an operation that its repeated runs share."""

    responses: dict[bytes, WebhookResponse | WebhookCallFailed] = field(
        default_factory=dict[bytes, "WebhookResponse | WebhookCallFailed"]
    )
    now: datetime | None = None
    random_draws: list[tuple[int, int | float]] = field(default_factory=list[tuple[int, "int | float"]])
    next_draw: int = 0


class WebhookCaller:
    """Calls webhooks and keeps their responses during an operation.

    Args:
        runtime: the server's clock and randomness.

    Attributes:
        runtime: clock and randomness for operations. Time stands still within an operation, and each run draws the
            same random numbers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._handlers: dict[str, WebhookHandler] = {}
        self._current: _Operation | None = None
        clock, source = _OperationClock(self, runtime.clock), _OperationRandom(self, runtime.random)
        self.runtime = replace(runtime, clock=clock, random=source)

    @property
    def current_operation(self) -> _Operation | None:
        """The operation that runs now, or None."""
        return self._current

    # Within operations

    def call(
        self, config: JsonObject, review: JsonObject, *, timeout_seconds: float = CONVERSION_TIMEOUT_SECONDS
    ) -> WebhookResponse:
        """Return the response of one webhook.

        Args:
            config: its WebhookClientConfig in wire form.
            review: the review, without ``request.uid``.
            timeout_seconds: time limit of the call.

        Raises:
            PendingWebhook: the webhook must be called first. Operations must not catch it.
            WebhookCallFailed: the call failed.
        """
        (result,) = self.call_all([WebhookCall(config, review, timeout_seconds)])
        if isinstance(result, WebhookCallFailed):
            raise result
        return result

    def call_all(self, calls: Sequence[WebhookCall]) -> list[WebhookResponse | WebhookCallFailed]:
        """Return the responses of concurrent calls.

        Raises:
            PendingWebhook: webhooks must be called first.
        """
        responses = self._current.responses if self._current is not None else {}
        missing = [c for c in calls if c.key not in responses]
        if missing:
            raise PendingWebhook(missing)
        return [responses[c.key] for c in calls]

    def completion_order(self, calls: Sequence[WebhookCall]) -> list[int]:
        """Return the positions of ``calls`` in the order of their responses."""
        order = list(self._current.responses) if self._current is not None else []
        return sorted(range(len(calls)), key=lambda n: order.index(calls[n].key))

    # Around operations

    async def run(self, operation: Callable[[], T]) -> T:
        """Run ``operation`` until all its webhooks have responded."""
        state = _Operation()
        while True:
            try:
                return self._run_once(operation, state)
            except PendingWebhook as pending:
                await self._send_all(pending.calls, state)

    def run_sync(self, operation: Callable[[], T]) -> T:
        """Run ``operation`` synchronously. Webhook handlers must not wait.

        Raises:
            WouldBlock: a webhook has no handler, or its handler waits.
        """
        state = _Operation()
        while True:
            try:
                return self._run_once(operation, state)
            except PendingWebhook as pending:
                for call in pending.calls:
                    self._send_sync(call, state)

    def _run_once(self, operation: Callable[[], T], state: _Operation) -> T:
        before, self._current = self._current, state
        state.next_draw = 0
        try:
            return operation()
        finally:
            self._current = before

    # Calls

    def register_handler(self, url: str, handler: WebhookHandler) -> None:
        """Register ``handler`` for ``url``: see ``InMemoryApiServer.serve_webhook``."""
        self._handlers[_normalized_url(url)] = handler

    async def _send_all(self, calls: Sequence[WebhookCall], state: _Operation) -> None:
        first, *others = calls
        if not others:
            # Call directly, so that exceptions of the handler are not in a group.
            await self._send(first, state)
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._send(call, state))

    async def _send(self, call: WebhookCall, state: _Operation) -> None:
        uid, review = self._review_with_uid(call)
        try:
            async with asyncio.timeout(call.timeout_seconds):
                response = await self._dispatch(call, review)
            state.responses[call.key] = WebhookResponse(uid, response)
        except TimeoutError:
            state.responses[call.key] = WebhookCallFailed(f"{call.description}: context deadline exceeded")
        except WebhookCallFailed as failure:
            state.responses[call.key] = failure

    def _send_sync(self, call: WebhookCall, state: _Operation) -> None:
        handler = self._handlers.get(_normalized_url(call.url))
        if handler is None:
            raise WouldBlock(f"{call.description}: it has no handler, and a socket would block: call serve_webhook")
        uid, review = self._review_with_uid(call)
        steps = handler(review).__await__()
        try:
            next(steps)
        except StopIteration as end:
            state.responses[call.key] = WebhookResponse(uid, end.value)
        except ConnectionFailed:
            state.responses[call.key] = _connection_refused(call)
        except WebhookCallFailed as failure:
            state.responses[call.key] = failure
        else:
            steps.close()
            raise WouldBlock(f"{call.description}: its handler waits: send the request with a client")

    def _review_with_uid(self, call: WebhookCall) -> tuple[str, JsonObject]:
        uid = str(UUID(int=self._runtime.random.getrandbits(128), version=4))
        request: JsonObject = {"uid": uid, **get_object(call.review, "request")}
        # Copy the review, because the handler may change it.
        return uid, msgspec.json.decode(msgspec.json.encode({**call.review, "request": request}))

    async def _dispatch(self, call: WebhookCall, review: JsonObject) -> JsonObject:
        handler = self._handlers.get(_normalized_url(call.url))
        if handler is not None:
            try:
                return await handler(review)
            except ConnectionFailed:
                raise _connection_refused(call) from None
        if service := call.client_config.get("service"):
            raise WebhookCallFailed(f'{call.description}: service "{service.get("name", "")}" not found')
        if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
            # Virtual time has no sockets, so nothing can listen.
            raise _connection_refused(call)
        return await _post(call, review)


def client_config_url(config: JsonObject) -> str:
    """Return the URL of a WebhookClientConfig.

    A Service has its name within the cluster.
    """
    if config.get("url"):
        return str(config["url"])
    service = get_object(config, "service")
    host = f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
    return f"https://{host}:{service.get('port') or 443}/{str(service.get('path') or '').lstrip('/')}"


def _normalized_url(url: str) -> str:
    parts = urlsplit(url)
    return f"https://{parts.hostname}:{parts.port or 443}{parts.path or '/'}"


def _connection_refused(call: WebhookCall) -> WebhookCallFailed:
    parts = urlsplit(call.url)
    return WebhookCallFailed(
        f"{call.description}: dial tcp {parts.hostname}:{parts.port or 443}: connect: connection refused"
    )


async def _post(call: WebhookCall, review: JsonObject) -> JsonObject:
    """Call a webhook on a socket."""
    parts = urlsplit(call.url)
    ca_bundle = base64.b64decode(call.client_config["caBundle"]) if call.client_config.get("caBundle") else None
    try:
        config = ClusterConfig(
            server=f"https://{parts.netloc}", ca=ca_bundle, proxy_url="", user_agent="kube-apiserver"
        )
        transport = HttpTransport(config)
    except ConfigurationError as error:
        raise WebhookCallFailed(f"{call.description}: {error}") from error
    try:
        response = await transport.request(_http_request(call, parts.path, review))
    except ConnectionFailed as error:
        raise WebhookCallFailed(f"{call.description}: {error}") from error
    finally:
        await transport.close()
    return decode_review_response(response)


def _http_request(call: WebhookCall, path: str, review: JsonObject) -> HttpRequest:
    return HttpRequest(
        method="POST",
        path=path or "/",
        query={"timeout": f"{call.timeout_seconds:.0f}s"},
        body=msgspec.json.encode(review),
        timeout=call.timeout_seconds,
    )


def decode_review_response(response: HttpResponse) -> JsonObject:
    """Decode the review of an HTTP response.

    Raises:
        WebhookCallFailed: the response has no review.
    """
    if response.status >= 300:
        raise WebhookCallFailed(_generic_server_error(response))
    try:
        review: Any = msgspec.json.decode(response.body)
    except msgspec.DecodeError as error:
        raise WebhookCallFailed(f"couldn't get version/kind; json parse error: {error}") from error
    if not is_map(review):
        raise WebhookCallFailed("couldn't get version/kind; json parse error: the response is not an object")
    return review


def _generic_server_error(response: HttpResponse) -> str:
    """Return client-go's message for an error response.

    Source: ``NewGenericServerResponse``.
    """
    text = response.body.decode(errors="replace").strip()
    match response.status:
        case 400:
            return "the server rejected our request for an unknown reason"
        case 401:
            return "the server has asked for the client to provide credentials"
        case 403:
            return text or "forbidden"
        case 404:
            return "the server could not find the requested resource"
        case 500:
            formatted = msgspec.json.encode(text or "unknown").decode()
            return f"an error on the server ({formatted}) has prevented the request from succeeding"
        case 503:
            return text or "the server is currently unable to handle the request"
        case code:
            return f"the server responded with the status code {code} but did not return more information"


class _OperationClock:
    """Clock whose time of day stands still during an operation."""

    def __init__(self, caller: WebhookCaller, clock: Clock) -> None:
        self._caller = caller
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        operation = self._caller.current_operation
        if operation is None:
            return self._clock.now()
        if operation.now is None:
            operation.now = self._clock.now()
        return operation.now

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class _OperationRandom(random.Random):
    """Random numbers that a repeated run of an operation draws again."""

    def __init__(self, caller: WebhookCaller, source: random.Random) -> None:
        super().__init__(0)
        self._caller = caller
        self._source = source

    def random(self) -> float:
        return float(self._draw(0))

    def getrandbits(self, k: int, /) -> int:
        return int(self._draw(k))

    def _draw(self, bits: int) -> int | float:
        operation = self._caller.current_operation
        if operation is None:
            return self._draw_new(bits)
        draws, position = operation.random_draws, operation.next_draw
        operation.next_draw += 1
        if position < len(draws) and draws[position][0] == bits:
            return draws[position][1]
        # This run differs from the previous one, so the remaining numbers are new.
        del draws[position:]
        draws.append((bits, self._draw_new(bits)))
        return draws[position][1]

    def _draw_new(self, bits: int) -> int | float:
        return self._source.getrandbits(bits) if bits else self._source.random()
