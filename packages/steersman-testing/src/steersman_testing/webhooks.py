"""Webhooks of a manager, called by the in-memory API server without sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from steersman.client.transport import HttpResponse
from steersman.manager import Manager
from steersman.webhook import WebhookServerOptions
from steersman.webhook.conversion import CONVERT_PATH
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.webhook_calls import decode_review_response


def serve_webhooks(server: InMemoryApiServer, manager: Manager, serving: WebhookServerOptions | None = None) -> None:
    """Install all webhooks of ``manager`` and call their handlers in process.

    Conversion webhooks are called for definitions whose ``spec.conversion`` comes from ``manager.webhooks``.

    Args:
        server: server that calls the webhooks.
        manager: manager that declares them.
        serving: address of the webhook server. Defaults to the options of the manager, or to a Service ``webhooks``.
    """
    serving = serving or manager.options.webhooks or WebhookServerOptions(service="webhooks", namespace="default")
    paths = [path for webhook in manager.webhooks.admission for path in webhook.paths]
    for path in [*paths, *([CONVERT_PATH] if manager.webhooks.conversions else [])]:
        server.serve_webhook(_url(serving, path), _Handler(manager, path))
    server.load(*manager.webhooks.configurations(serving))
    if manager.options.webhooks is None:
        # Otherwise the manager warns at its start that nothing serves the webhooks.
        manager.options = replace(manager.options, serve_webhooks=False)


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
