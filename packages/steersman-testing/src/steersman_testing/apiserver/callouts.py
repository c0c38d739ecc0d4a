"""Calls out of the server: webhooks, for operations that cannot wait.

A verb is carried out at once, and nothing else happens meanwhile; a webhook takes its time. So an operation asks
``Callouts`` for a webhook's answer, and where that is not there yet, ``NeedsCall`` ends the operation before it has
stored anything. ``complete`` makes the call, keeps the answer and runs the operation again from its start, with the
same time and the same random numbers. It asks the same questions then, and finds them answered. A question that has
changed, since another request changed the object meanwhile, is asked anew, as the real server does after a conflict.

Answers are kept for one operation: the next request asks again.

To use it, inside an operation::

    answer = callouts.answer(client_config, review)     # raises NeedsCall, or CallFailed

and around it, ``await callouts.complete(lambda: verbs.create(route, request))``.

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

from steersman.client.cluster import ClusterConfig
from steersman.client.http import HttpTransport
from steersman.client.transport import HttpRequest, HttpResponse
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.observability.runtime import Clock, Runtime
from steersman_testing.apiserver.values import JsonObject, is_map, map_at
from steersman_testing.virtual_clock import VirtualTimeLoop

T = TypeVar("T")

Handler = Callable[[JsonObject], Awaitable[JsonObject]]
"""Answers a review (AdmissionReview, ConversionReview) with a review. Raises ConnectionFailed to be unreachable."""

CONVERSION_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """One question to one webhook.

    Attributes:
        config: its WebhookClientConfig, in wire form.
        question: the review, in wire form, without ``request.uid``.
        timeout: seconds that the answer may take.
        webhook: its name, where several of them share a URL.
    """

    config: JsonObject
    question: JsonObject
    timeout: float = CONVERSION_TIMEOUT
    webhook: str = ""

    @property
    def key(self) -> bytes:
        """Equal for the same question to the same webhook."""
        return msgspec.json.encode((self.webhook, self.config, self.question))

    @property
    def url(self) -> str:
        """Where it is asked; a Service is asked under its name in the cluster."""
        return url_of(self.config)

    @property
    def post(self) -> str:
        """The call as Go names it in an error."""
        return f'Post "{self.url}?timeout={self.timeout:.0f}s"'


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook answered.

    Attributes:
        uid: of the question, which ``review["response"]["uid"]`` must repeat; nobody has looked yet.
        review: the answer, in wire form.
    """

    uid: str
    review: JsonObject


class NeedsCall(Exception):
    """An operation cannot go on before ``calls`` are answered."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(f"a webhook must be asked: {', '.join(c.url for c in calls)}")
        self.calls = calls


class CannotWait(RuntimeError):
    """A webhook has to be waited for, where nobody can."""


class CallFailed(Exception):
    """A webhook gave no answer. Its text is what the real server says of it, after ``failed to call webhook: ``."""


@dataclass(slots=True)
class _Operation:
    """What an operation finds again when it is run again."""

    answers: dict[bytes, Answer | CallFailed] = field(default_factory=dict[bytes, "Answer | CallFailed"])
    moment: datetime | None = None
    drawn: list[tuple[int, int | float]] = field(default_factory=list[tuple[int, "int | float"]])
    position: int = 0


class Callouts:
    """Keeps the answers of webhooks, and asks for those that are missing.

    Args:
        runtime: the server's clock and randomness.

    Attributes:
        runtime: for operations: within one of them time stands still, and each run of it draws the same numbers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._handlers: dict[str, Handler] = {}
        self._current: _Operation | None = None
        clock, source = _OperationClock(self, runtime.clock), _OperationRandom(self, runtime.random)
        self.runtime = replace(runtime, clock=clock, random=source)

    @property
    def current(self) -> _Operation | None:
        """The operation that is being carried out right now."""
        return self._current

    # For operations

    def answer(self, config: JsonObject, question: JsonObject, *, timeout: float = CONVERSION_TIMEOUT) -> Answer:
        """What the webhook at ``config`` answers.

        Args:
            config: WebhookClientConfig, in wire form.
            question: the review, without ``request.uid``.
            timeout: seconds that it may take.

        Raises:
            NeedsCall: it has not been asked yet. Not to be caught by the operation.
            CallFailed: it was asked, and gave no answer.
        """
        (found,) = self.answers([Call(config, question, timeout)])
        if isinstance(found, CallFailed):
            raise found
        return found

    def answers(self, calls: Sequence[Call]) -> list[Answer | CallFailed]:
        """The same for several calls, which are made at the same time. Raises NeedsCall."""
        kept = self._current.answers if self._current is not None else {}
        missing = [c for c in calls if c.key not in kept]
        if missing:
            raise NeedsCall(missing)
        return [kept[c.key] for c in calls]

    def first_answered(self, calls: Sequence[Call]) -> list[int]:
        """The positions of ``calls``, all of them answered, in the order in which their answers came."""
        order = list(self._current.answers) if self._current is not None else []
        return sorted(range(len(calls)), key=lambda n: order.index(calls[n].key))

    # Around operations

    async def complete(self, operation: Callable[[], T]) -> T:
        """Runs ``operation``, as often as it takes to have all its webhooks asked, and returns its result."""
        kept = _Operation()
        while True:
            try:
                return self._run(operation, kept)
            except NeedsCall as needed:
                await self._ask_all(needed.calls, kept)

    def finish(self, operation: Callable[[], T]) -> T:
        """``complete`` where nothing can wait: the handlers must answer at once.

        Raises:
            CannotWait: a webhook is asked that nobody handles here, or whose handler waits for something.
        """
        kept = _Operation()
        while True:
            try:
                return self._run(operation, kept)
            except NeedsCall as needed:
                for call in needed.calls:
                    self._ask_at_once(call, kept)

    def _run(self, operation: Callable[[], T], kept: _Operation) -> T:
        before, self._current = self._current, kept
        kept.position = 0
        try:
            return operation()
        finally:
            self._current = before

    # Calls

    def serve(self, url: str, handler: Handler) -> None:
        """Lets ``handler`` answer for the webhook at ``url``: see ``InMemoryApiServer.serve_webhook``."""
        self._handlers[_normal(url)] = handler

    async def _ask_all(self, calls: Sequence[Call], kept: _Operation) -> None:
        first, *others = calls
        if not others:
            # What a handler raises then comes bare, in no group.
            await self._ask(first, kept)
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._ask(call, kept))

    async def _ask(self, call: Call, kept: _Operation) -> None:
        uid, question = self._question(call)
        try:
            async with asyncio.timeout(call.timeout):
                review = await self._call(call, question)
            kept.answers[call.key] = Answer(uid, review)
        except TimeoutError:
            kept.answers[call.key] = CallFailed(f"{call.post}: context deadline exceeded")
        except CallFailed as failure:
            kept.answers[call.key] = failure

    def _ask_at_once(self, call: Call, kept: _Operation) -> None:
        handler = self._handlers.get(_normal(call.url))
        if handler is None:
            raise CannotWait(f"{call.post}: nothing handles it in memory, and a socket would have to be waited for")
        uid, question = self._question(call)
        steps = handler(question).__await__()
        try:
            next(steps)
        except StopIteration as end:
            kept.answers[call.key] = Answer(uid, end.value)
        except ConnectionFailed:
            kept.answers[call.key] = _refused(call)
        except CallFailed as failure:
            kept.answers[call.key] = failure
        else:
            steps.close()
            raise CannotWait(f"{call.post}: its handler waits; send the request with a client, or load it earlier")

    def _question(self, call: Call) -> tuple[str, JsonObject]:
        uid = str(UUID(int=self._runtime.random.getrandbits(128), version=4))
        request: JsonObject = {"uid": uid, **map_at(call.question, "request")}
        # A copy: what the handler does with it must not reach the storage.
        return uid, msgspec.json.decode(msgspec.json.encode({**call.question, "request": request}))

    async def _call(self, call: Call, question: JsonObject) -> JsonObject:
        handler = self._handlers.get(_normal(call.url))
        if handler is not None:
            try:
                return await handler(question)
            except ConnectionFailed:
                raise _refused(call) from None
        if service := call.config.get("service"):
            raise CallFailed(f'{call.post}: service "{service.get("name", "")}" not found')
        if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
            # Virtual time knows no sockets: nobody is there who could listen.
            raise _refused(call)
        return await _post(call, question)


def url_of(config: JsonObject) -> str:
    """The URL that a WebhookClientConfig means; of a Service, its name in the cluster."""
    if config.get("url"):
        return str(config["url"])
    service = map_at(config, "service")
    host = f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
    return f"https://{host}:{service.get('port') or 443}/{str(service.get('path') or '').lstrip('/')}"


def _normal(url: str) -> str:
    parts = urlsplit(url)
    return f"https://{parts.hostname}:{parts.port or 443}{parts.path or '/'}"


def _refused(call: Call) -> CallFailed:
    parts = urlsplit(call.url)
    return CallFailed(f"{call.post}: dial tcp {parts.hostname}:{parts.port or 443}: connect: connection refused")


async def _post(call: Call, question: JsonObject) -> JsonObject:
    """The answer of a webhook on a socket."""
    parts = urlsplit(call.url)
    authority = base64.b64decode(call.config["caBundle"]) if call.config.get("caBundle") else None
    try:
        config = ClusterConfig(
            server=f"https://{parts.netloc}", ca=authority, proxy_url="", user_agent="kube-apiserver"
        )
        transport = HttpTransport(config)
    except ConfigurationError as error:
        raise CallFailed(f"{call.post}: {error}") from error
    try:
        response = await transport.request(_http_request(call, parts.path, question))
    except ConnectionFailed as error:
        raise CallFailed(f"{call.post}: {error}") from error
    finally:
        await transport.close()
    return answer_of(response)


def _http_request(call: Call, path: str, question: JsonObject) -> HttpRequest:
    return HttpRequest(
        method="POST",
        path=path or "/",
        query={"timeout": f"{call.timeout:.0f}s"},
        body=msgspec.json.encode(question),
        timeout=call.timeout,
    )


def answer_of(response: HttpResponse) -> JsonObject:
    """The review that a webhook answered with. Raises CallFailed: it is none."""
    if response.status >= 300:
        raise CallFailed(_generic_refusal(response))
    try:
        review: Any = msgspec.json.decode(response.body)
    except msgspec.DecodeError as error:
        raise CallFailed(f"couldn't get version/kind; json parse error: {error}") from error
    if not is_map(review):
        raise CallFailed("couldn't get version/kind; json parse error: the answer is no object")
    return review


def _generic_refusal(response: HttpResponse) -> str:
    """What client-go says of an answer that is no success. Source: ``NewGenericServerResponse``."""
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
            shown = msgspec.json.encode(text or "unknown").decode()
            return f"an error on the server ({shown}) has prevented the request from succeeding"
        case 503:
            return text or "the server is currently unable to handle the request"
        case code:
            return f"the server responded with the status code {code} but did not return more information"


class _OperationClock:
    """The server's clock; the time of day stands still during an operation."""

    def __init__(self, callouts: Callouts, clock: Clock) -> None:
        self._callouts = callouts
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        operation = self._callouts.current
        if operation is None:
            return self._clock.now()
        if operation.moment is None:
            operation.moment = self._clock.now()
        return operation.moment

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class _OperationRandom(random.Random):
    """The server's randomness; a second run of an operation draws what the first has drawn."""

    def __init__(self, callouts: Callouts, source: random.Random) -> None:
        super().__init__(0)
        self._callouts = callouts
        self._source = source

    def random(self) -> float:
        return float(self._draw(0))

    def getrandbits(self, k: int, /) -> int:
        return int(self._draw(k))

    def _draw(self, bits: int) -> int | float:
        operation = self._callouts.current
        if operation is None:
            return self._fresh(bits)
        drawn, position = operation.drawn, operation.position
        operation.position += 1
        if position < len(drawn) and drawn[position][0] == bits:
            return drawn[position][1]
        # The operation went another way this time: from here on, nothing is the same.
        del drawn[position:]
        drawn.append((bits, self._fresh(bits)))
        return drawn[position][1]

    def _fresh(self, bits: int) -> int | float:
        return self._source.getrandbits(bits) if bits else self._source.random()
