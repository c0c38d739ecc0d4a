"""One case on one server, and what it said there."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from apiserver_cases.api import Api, Backend, Case, Json, WebhookHandler
from apiserver_cases.backends import InMemoryBackend, ReadYourWrites, RealBackend, RetryWhileInitializing
from apiserver_cases.installation import make_namespace
from apiserver_cases.transcript import Exchange, Transcript
from steersman.client.transport import Transport
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser
from steersman_testing.envtest import Envtest

# Seconds for one case on the real server.
_TIMEOUT_SECONDS = 60.0
_namespace_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case: what was said, and what was not as the case expects it (None: all was)."""

    transcript: Transcript
    failure: BaseException | None

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """What was said, masked for comparison."""
        return self.transcript.exchanges()


def new_namespace() -> str:
    """The name of a namespace that no other case has used, in this process or another."""
    return f"case-{os.getpid()}-{next(_namespace_numbers)}"


class _RecordingBackend:
    """A backend whose transports write down what goes through them, too."""

    def __init__(self, backend: Backend, transcript: Transcript) -> None:
        self._backend = backend
        self._transcript = transcript

    def as_user(self, name: str, groups: tuple[str, ...]) -> Transport:
        return self._transcript.record(self._backend.as_user(name, groups), name)

    def as_bearer(self, token: str, impersonate: ImpersonatedUser | None = None) -> Transport:
        user = "bearer" if impersonate is None else f"bearer as {impersonate.name}"
        return self._transcript.record(self._backend.as_bearer(token, impersonate), user)

    async def serve_webhook(self, handler: WebhookHandler) -> Json:
        return await self._backend.serve_webhook(handler)


def _recording_api(transport: Transport, namespace: str, backend: Backend, transcript: Transcript) -> Api:
    return Api(transcript.record(transport), namespace, _RecordingBackend(backend, transcript))


def run_in_memory(case: Case, crds: Sequence[Json], namespace: str) -> CaseResult:
    """Runs ``case`` in memory, in virtual time, on a server of its own; as with envtest, no controllers run."""
    transcript = Transcript()

    async def run() -> None:
        server = InMemoryApiServer(virtual_runtime(), controllers=False)
        server.load(*crds, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await case(_recording_api(server, namespace, InMemoryBackend(server), transcript))

    failure: BaseException | None = None
    try:
        run_virtual(run())
    except Exception as error:
        failure = error
    return CaseResult(transcript, failure)


async def run_on_real_server(environment: Envtest, transport: Transport, case: Case, namespace: str) -> CaseResult:
    """Runs ``case`` in a new namespace of the real server, as the administrator whose way to it ``transport`` is."""
    transcript = Transcript()
    failure: BaseException | None = None
    try:
        await make_namespace(transport, namespace)
        async with AsyncExitStack() as stack, asyncio.timeout(_TIMEOUT_SECONDS):
            backend = RealBackend(environment.config, stack)
            await case(
                _recording_api(ReadYourWrites(RetryWhileInitializing(transport)), namespace, backend, transcript)
            )
    except Exception as error:
        failure = error
    return CaseResult(transcript, failure)
