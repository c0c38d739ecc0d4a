"""Webhooks for the cases about admission: what they were asked, and what they answer."""

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
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
PROBE = "is-it-served"


def allowed(**more: Any) -> Json:
    """A response."""
    return {"allowed": True, **more}


def patched(*operations: Json, **more: Any) -> Json:
    """A response with a JSON patch."""
    return allowed(patchType="JSONPatch", patch=base64.b64encode(json.dumps(operations).encode()).decode(), **more)


def shaped(patch: Any) -> Json:
    """A response with ``patch``, whatever it is, as a JSON patch."""
    return allowed(patchType="JSONPatch", patch=base64.b64encode(json.dumps(patch).encode()).decode())


def denied(message: str = "no", **status: Any) -> Json:
    """A response."""
    return {"allowed": False, "status": {"message": message, **status}}


@dataclass(slots=True)
class Hook:
    """A webhook: ``answer`` gives the response to a request, and ``requests`` are those that it was asked about.

    With a ``gate``, no answer comes before that is open.
    """

    answer: Callable[[Json], Json] = lambda _: allowed()
    requests: list[Json] = field(default_factory=list[Json])
    is_served: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None

    async def __call__(self, review: Json) -> Json:
        request = review["request"]
        names = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        if request.get("name") == PROBE:
            self.is_served.set()
            return {**names, "response": {"uid": request["uid"], "allowed": True}}
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        response = self.answer(request)
        return response.get("whole") or {**names, "response": {"uid": request["uid"], **response}}

    @property
    def asked(self) -> list[str]:
        """Operation and name of each request."""
        return [f"{r['operation']} {r.get('name', '')}".strip() for r in self.requests]


@asynccontextmanager
async def configured(
    api: Api, hook: Hook, *, mutating: bool = False, name: str = "a", **fields: Any
) -> AsyncGenerator[str]:
    """Has ``hook`` asked about what happens in the namespace, during the block; gives its name."""
    config = await api.serve_webhook(hook)
    async with installed(api, webhook(api, config, name, **fields), mutating=mutating, name=name) as called:
        await served(api, hook)
        yield called
    await forgotten(api, hook)


async def served(api: Api, hook: Hook) -> None:
    """Returns once ``hook`` is asked: the real server reads its configurations some time after they are written."""
    await _until_asked(api, hook, True)


async def forgotten(api: Api, hook: Hook) -> None:
    """Returns once ``hook`` is asked no more: what comes next would meet it otherwise."""
    await _until_asked(api, hook, False)


async def _until_asked(api: Api, hook: Hook, asked: bool) -> None:
    async with asyncio.timeout(30):
        while True:
            hook.is_served.clear()
            (await api.create("configmaps", config_map(PROBE), dryRun="All")).ok()
            if hook.is_served.is_set() is asked:
                return
            await asyncio.sleep(0.02)


def webhook(api: Api, config: Json, name: str = "a", **fields: Any) -> Json:
    """One webhook for all that happens in the namespace."""
    return {
        "name": f"{name}.{api.namespace}.dev",
        "clientConfig": config,
        "rules": [EVERYTHING],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        **fields,
    }


@asynccontextmanager
async def installed(api: Api, *webhooks: Json, mutating: bool = False, name: str = "a") -> AsyncGenerator[str]:
    """Keeps a configuration of ``webhooks`` during the block; gives the first one's name."""
    plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
    full = f"{name}-{api.namespace}"
    body: Json = {"metadata": {"name": full}, "webhooks": list(webhooks)}
    (await api.call("POST", f"{PATH}/{plural}", body)).ok()
    try:
        yield webhooks[0]["name"]
    finally:
        (await api.call("DELETE", f"{PATH}/{plural}/{full}")).ok()
