"""Work operator on Kopf; kubernetes_asyncio sends the writes.

Kopf has no metrics and no leader election. Dictionaries cache the objects, because the start-up time of Kopf's
indexes is quadratic in the number of objects: more than ten minutes for 10,000. Kopf's worker limit is off. Each
worker stays with its object for five idle seconds, so 32 workers would process 6 objects per second. A semaphore
bounds the concurrency instead.
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
_works: dict[str, kopf.Body] = {}
_texts: dict[str, str | None] = {}
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


@kopf.on.resume("works")
@kopf.on.create("works")
@kopf.on.update("works", field="spec")
async def reconcile(body: kopf.Body, name: str, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    started_at = time.time_ns()
    _works[name] = body
    status, generation = body.status, body.metadata["generation"]
    if status.get("observedGeneration") == generation and status.get("configMap") == name:
        return
    await ensure_config_map(memo, body)
    patch.status.update({"observedGeneration": generation, "configMap": name})
    if _timed:
        patch.status["startedAt"] = started_at
    if _with_events:
        kopf.info(body, reason="Done", message="the ConfigMap is there")


@kopf.on.event("configmaps", labels=_OWNED)
async def owned_changed(type: str | None, name: str, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    _texts[name] = None if type == "DELETED" else body.get("data", {}).get("text")
    work = _works.get(name)
    if work is not None and _texts[name] != work.spec["text"]:
        await ensure_config_map(memo, work)


async def ensure_config_map(memo: kopf.Memo, work: kopf.Body) -> None:
    name, namespace, text = work.metadata.name, work.metadata.namespace, work.spec["text"]
    config_map: dict[str, Any] = {"metadata": {"name": name, "labels": dict(_OWNED)}, "data": {"text": text}}
    kopf.append_owner_reference(config_map, owner=work)
    async with memo.slots:
        if _texts.get(name) == text:
            return
        if _texts.get(name) is None:
            await memo.api.create_namespaced_config_map(namespace, config_map)
        else:
            await memo.api.patch_namespaced_config_map(name, namespace, config_map)
