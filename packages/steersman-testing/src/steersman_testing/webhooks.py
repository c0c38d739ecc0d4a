"""Has an API server in memory ask the webhooks of a manager, without sockets and certificates."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.client.transport import HttpResponse
from steersman.manager import Manager
from steersman.webhook import WebhookServerOptions
from steersman.webhook.conversion import CONVERT_PATH
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.webhook_calls import decode_review_response


def serve_webhooks(server: InMemoryApiServer, manager: Manager, serving: WebhookServerOptions | None = None) -> None:
    """Installs the configurations of all webhooks that ``manager`` has declared, and has its handlers asked.

    Conversions are asked as well, by definitions that say ``spec.conversion`` as ``manager.webhooks`` gives it.

    Args:
        serving: where; the manager's own unless told, or a Service ``webhooks``.
    """
    serving = serving or manager.options.webhooks or WebhookServerOptions(service="webhooks", namespace="default")
    paths = [path for webhook in manager.webhooks.admission for path in webhook.paths]
    for path in [*paths, *([CONVERT_PATH] if manager.webhooks.conversions else [])]:
        server.serve_webhook(_url(serving, path), _Handler(manager, path))
    server.load(*manager.webhooks.configurations(serving))


class _Handler:
    def __init__(self, manager: Manager, path: str) -> None:
        self._manager = manager
        self._path = path

    async def __call__(self, review: dict[str, Any]) -> dict[str, Any]:
        response = await self._manager.webhooks.handle(self._path, "", msgspec.json.encode(review))
        return decode_review_response(HttpResponse(response.status, response.body))


def _url(serving: WebhookServerOptions, path: str) -> str:
    if serving.url:
        return f"{serving.url.rstrip('/')}{path}"
    return f"https://{serving.service}.{serving.namespace}.svc:{serving.port}{path}"
