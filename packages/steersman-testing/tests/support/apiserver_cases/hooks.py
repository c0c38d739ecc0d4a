"""Webhooks for the cases about admission."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from apiserver_cases.api import Api, Json, config_map

PATH = "/apis/admissionregistration.k8s.io/v1"
MATCH_ALL_RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
PROBE_NAME = "is-it-served"


def allow_response(**more: Any) -> Json:
    """Return a response that allows the request."""
    return {"allowed": True, **more}


def patch_response(*operations: Json, **more: Any) -> Json:
    """Return a response with a JSON patch."""
    return allow_response(
        patchType="JSONPatch", patch=base64.b64encode(json.dumps(operations).encode()).decode(), **more
    )


def raw_patch_response(patch: Any) -> Json:
    """Return a response with any value as a JSON patch."""
    return allow_response(patchType="JSONPatch", patch=base64.b64encode(json.dumps(patch).encode()).decode())


def deny_response(message: str = "no", **status: Any) -> Json:
    """Return a response that denies the request."""
    return {"allowed": False, "status": {"message": message, **status}}


@dataclass(slots=True)
class WebhookStub:
    """Webhook that responds with ``respond`` and records ``requests``.

    A ``gate`` delays the responses until it opens.
    """

    respond: Callable[[Json], Json] = lambda _: allow_response()
    requests: list[Json] = field(default_factory=list[Json])
    was_probed: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None

    async def __call__(self, review: Json) -> Json:
        request = review["request"]
        names = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        if request.get("name") == PROBE_NAME:
            self.was_probed.set()
            return {**names, "response": {"uid": request["uid"], "allowed": True}}
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        response = self.respond(request)
        return response.get("whole") or {**names, "response": {"uid": request["uid"], **response}}

    @property
    def operations(self) -> list[str]:
        """Operation and name of each request."""
        return [f"{r['operation']} {r.get('name', '')}".strip() for r in self.requests]


@asynccontextmanager
async def served_webhook(
    api: Api, hook: WebhookStub, *, mutating: bool = False, name: str = "a", **fields: Any
) -> AsyncGenerator[str]:
    """Configure ``hook`` during the block and yield its name."""
    config = await api.serve_webhook(hook)
    async with installed_configuration(
        api, webhook_manifest(api, config, name, **fields), mutating=mutating, name=name
    ) as full_name:
        await wait_until_served(api, hook)
        yield full_name
    await wait_until_removed(api, hook)


async def wait_until_served(api: Api, hook: WebhookStub) -> None:
    """Wait until the server calls ``hook``.

    The real server loads configurations some time after they are written.
    """
    await _wait_for_probe(api, hook, True)


async def wait_until_removed(api: Api, hook: WebhookStub) -> None:
    """Wait until the server no longer calls ``hook``.

    Otherwise it could affect later cases.
    """
    await _wait_for_probe(api, hook, False)


async def _wait_for_probe(api: Api, hook: WebhookStub, expected: bool) -> None:
    async with asyncio.timeout(30):
        while True:
            hook.was_probed.clear()
            (await api.create("configmaps", config_map(PROBE_NAME), dryRun="All")).expect_success()
            if hook.was_probed.is_set() is expected:
                return
            await asyncio.sleep(0.02)


def webhook_manifest(api: Api, config: Json, name: str = "a", **fields: Any) -> Json:
    """Return one webhook for all requests in the namespace."""
    return {
        "name": f"{name}.{api.namespace}.dev",
        "clientConfig": config,
        "rules": [MATCH_ALL_RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        **fields,
    }


@asynccontextmanager
async def installed_configuration(
    api: Api, *webhooks: Json, mutating: bool = False, name: str = "a"
) -> AsyncGenerator[str]:
    """Install a configuration and yield the name of its first webhook."""
    plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
    full_name = f"{name}-{api.namespace}"
    body: Json = {"metadata": {"name": full_name}, "webhooks": list(webhooks)}
    (await api.call("POST", f"{PATH}/{plural}", body)).expect_success()
    try:
        yield webhooks[0]["name"]
    finally:
        (await api.call("DELETE", f"{PATH}/{plural}/{full_name}")).expect_success()
