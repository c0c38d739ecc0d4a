"""Has an API server in memory ask the webhooks of a manager, without sockets and certificates."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.client.transport import HttpResponse
from steersman.manager import Manager
from steersman.webhook import WebhookServing
from steersman.webhook.conversion import CONVERT
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.callouts import answer_of


def serve_webhooks(server: InMemoryApiServer, manager: Manager, serving: WebhookServing | None = None) -> None:
    """Installs the configurations of all webhooks that ``manager`` has declared, and has its handlers asked.

    Conversions are asked as well, by definitions that say ``spec.conversion`` as ``manager.webhooks`` gives it.

    Args:
        serving: where; the manager's own unless told, or a Service ``webhooks``.
    """
    serving = serving or manager.options.webhooks or WebhookServing(service="webhooks", namespace="default")
    paths = [path for webhook in manager.webhooks.admission for path in webhook.paths]
    for path in [*paths, *([CONVERT] if manager.webhooks.conversions else [])]:
        server.serve_webhook(_url(serving, path), _Handler(manager, path))
    server.load(*manager.webhooks.configurations(serving))


class _Handler:
    def __init__(self, manager: Manager, path: str) -> None:
        self._manager = manager
        self._path = path

    async def __call__(self, review: dict[str, Any]) -> dict[str, Any]:
        answer = await self._manager.webhooks.answer(self._path, "", msgspec.json.encode(review))
        return answer_of(HttpResponse(answer.status, answer.body))


def _url(serving: WebhookServing, path: str) -> str:
    if serving.url:
        return f"{serving.url.rstrip('/')}{path}"
    return f"https://{serving.service}.{serving.namespace}.svc:{serving.port}{path}"
