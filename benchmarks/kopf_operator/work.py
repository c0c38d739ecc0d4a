"""The operator under test, as its users write one: Kopf, with kubernetes_asyncio to write.

Kopf has no metrics and no leader election. Its limit of workers is left off: each worker stays with its object for
five idle seconds, so that 32 would do 6 objects a second. A semaphore bounds the concurrency instead.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import kopf
from kubernetes_asyncio import client, config
from settings import configure

_OWNED = {"app.kubernetes.io/managed-by": "benchmark"}
_with_events = os.environ.get("BENCHMARK_EVENTS") == "yes"
_timed = os.environ.get("BENCHMARK_TIMED") == "yes"


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    configure(settings)
    await config.load_kube_config()
    memo.api = client.CoreV1Api()
    memo.slots = asyncio.Semaphore(int(os.environ["BENCHMARK_WORKERS"]))


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    await memo.api.api_client.close()


@kopf.index("works")
def works(name: str, body: kopf.Body, **_: Any) -> dict[str, Any]:
    return {name: body}


@kopf.index("configmaps", labels=_OWNED)
def texts(name: str, body: kopf.Body, **_: Any) -> dict[str, str | None]:
    return {name: body.get("data", {}).get("text")}


@kopf.on.resume("works")
@kopf.on.create("works")
@kopf.on.update("works", field="spec")
async def reconcile(
    body: kopf.Body, name: str, patch: kopf.Patch, memo: kopf.Memo, texts: kopf.Index[str, str | None], **_: Any
) -> None:
    started = time.time_ns()
    async with memo.slots:
        await ensure_config_map(memo, body, texts)
    status, generation = body.status, body.metadata["generation"]
    if status.get("observedGeneration") == generation and status.get("configMap") == name:
        return
    patch.status.update({"observedGeneration": generation, "configMap": name})
    if _timed:
        patch.status["startedAt"] = started
    if _with_events:
        kopf.info(body, reason="Done", message="the ConfigMap is there")


@kopf.on.event("configmaps", labels=_OWNED)
async def owned_changed(
    name: str, memo: kopf.Memo, works: kopf.Index[str, kopf.Body], texts: kopf.Index[str, str | None], **_: Any
) -> None:
    for body in works.get(name, ()):
        async with memo.slots:
            await ensure_config_map(memo, body, texts)


async def ensure_config_map(memo: kopf.Memo, work: kopf.Body, texts: kopf.Index[str, str | None]) -> None:
    name, namespace, text = work.metadata.name, work.metadata.namespace, work.spec["text"]
    present = list(texts.get(name, ()))
    if present == [text]:
        return
    config_map: dict[str, Any] = {"metadata": {"name": name, "labels": dict(_OWNED)}, "data": {"text": text}}
    kopf.append_owner_reference(config_map, owner=work)
    if present:
        await memo.api.patch_namespaced_config_map(name, namespace, config_map)
    else:
        await memo.api.create_namespaced_config_map(namespace, config_map)
