"""Permissions of CertRotator on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from steersman.api.core_v1 import Secret
from steersman.controller import Permission
from steersman.meta import ObjectKey, unstructured
from steersman.observability.runtime import Runtime
from steersman.webhook import WebhookServerOptions
from steersman.webhook.cert_rotator import CertRotator
from steersman.webhook.certificates import KeyPair
from steersman.webhook.registry import VALIDATING_CONFIGURATION
from steersman_manifests.rbac import cluster_role, webhook_certificate_role
from steersman_testing.envtest import Envtest

SERVING = WebhookServerOptions(service="shop", namespace="default", name="rights")
KIND = unstructured(VALIDATING_CONFIGURATION)
KEY = ObjectKey("", "rights")


def configuration(*names: str) -> Any:
    rule = {"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "resources": ["x"], "operations": ["CREATE"]}
    more = {"rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    entries = [{"name": f"{n}.example.com", "clientConfig": SERVING.client_config("/x"), **more} for n in names]
    return KIND.of({"metadata": {"name": KEY.name}, "webhooks": entries})


async def test_certificate_rotator_roles_are_minimal(envtest: Envtest) -> None:
    permissions = [Permission(VALIDATING_CONFIGURATION, ("get", "watch", "patch"), names=(KEY.name,))]
    roles = [
        cluster_role("webhook-rights", permissions),
        webhook_certificate_role("webhook-rights", SERVING.secret_name, namespace="default"),
    ]
    operator = envtest.user("system:serviceaccount:default:shop", roles=roles)
    shown: list[KeyPair] = []
    async with envtest.client(field_manager="installer") as installer, envtest.client(operator) as client:
        await installer.apply(configuration("a.b", "c.d"))
        keeper = CertRotator(client, SERVING, [(VALIDATING_CONFIGURATION, KEY.name)], Runtime(), shown.append)
        running = asyncio.create_task(keeper.run())
        try:
            async with asyncio.timeout(20):
                while keeper.check() is not None:
                    await asyncio.sleep(0.02)
            assert len(shown) == 1
            # The installer applies what it did before, less one webhook: the API server must not keep half of that.
            again = await installer.apply(configuration("a.b"), force=False)
            (entry,) = again.content["webhooks"]
            assert entry["clientConfig"]["caBundle"]
            # The watch, which the role allows too, triggers it long before the next poll.
            await installer.delete(KIND, KEY)
            await installer.apply(configuration("a.b"))
            async with asyncio.timeout(20):
                while not (await installer.get(KIND, KEY)).content["webhooks"][0]["clientConfig"].get("caBundle"):
                    await asyncio.sleep(0.02)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await installer.delete(KIND, KEY)
            await installer.delete(Secret, ObjectKey("default", SERVING.secret_name))
