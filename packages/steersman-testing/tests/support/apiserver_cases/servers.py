"""Runs one case on one server and records its exchanges."""

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
    """Result of a case: its exchanges, and the failed expectation or None."""

    transcript: Transcript
    failure: BaseException | None

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """Exchanges, masked for comparison."""
        return self.transcript.exchanges()


def new_namespace() -> str:
    """Return the name of a namespace that no other case uses."""
    return f"case-{os.getpid()}-{next(_namespace_numbers)}"


class _RecordingBackend:
    """Backend whose transports record their exchanges."""

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
    """Run ``case`` in memory and in virtual time.

    No controllers run, as in envtest.
    """
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
    """Run ``case`` in a new namespace of the real server.

    ``transport`` belongs to the administrator.
    """
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
