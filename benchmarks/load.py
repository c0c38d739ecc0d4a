"""Load generator: bulk creation of objects and changes at a steady rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec

from benchmarks.environment import NAMESPACE, BenchmarkApiServer
from benchmarks.etcd import rewrite_keys
from benchmarks.pod_documents import pod_document, pod_name
from benchmarks.work import Work
from steersman.client import Client, HttpRequest
from steersman.errors import ApiStatus, error_from_status
from steersman.meta import ObjectKey

_PARALLEL_REQUESTS = 32


def work_key(number: int) -> ObjectKey:
    """Return the key of the Work with this number."""
    return ObjectKey(NAMESPACE, f"work-{number:05}")


async def create_works(server: BenchmarkApiServer, count: int) -> str:
    """Create ``count`` Works on all cores. Return a resourceVersion for a watch."""

    async def create(number: int) -> None:
        key = work_key(number)
        await _send(
            server.client,
            "POST",
            Work.api_resource.path(namespace=key.namespace),
            {
                "apiVersion": Work.api_resource.api_version,
                "kind": Work.api_resource.kind,
                "metadata": {"name": key.name, "namespace": key.namespace},
                "spec": {"text": f"the text of {key.name}"},
            },
        )

    with server.all_cores():
        await run_in_parallel(create, range(count))
    return await _current_version(server.client)


async def create_pods(server: BenchmarkApiServer, count: int) -> None:
    """Create ``count`` pods on all cores."""

    async def create(number: int) -> None:
        pod, path = pod_document(number), f"/api/v1/namespaces/{NAMESPACE}/pods"
        await _send(server.client, "POST", path, pod)
        # A created pod has no status; a kubelet would write it.
        await _send(server.client, "PATCH", f"{path}/{pod_name(number)}/status", {"status": pod["status"]})

    with server.all_cores():
        await run_in_parallel(create, range(count))


async def churn_pods(server: BenchmarkApiServer, count: int) -> None:
    """Rewrite each pod in etcd, so that watches receive one event each."""
    keys = (f"/registry/pods/{NAMESPACE}/{pod_name(number)}" for number in range(count))
    await rewrite_keys(server.environment.directory / "etcd:0", keys)


async def change_pod(client: Client, number: int, value: str) -> None:
    """Update an annotation of a pod."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name(number)}"
    await _send(client, "PATCH", path, {"metadata": {"annotations": {"benchmarks.steersman.dev/churn": value}}})


async def change_work(client: Client, key: ObjectKey, text: str) -> int:
    """Update the text of a Work and return the new generation."""
    body = await _send(client, "PATCH", Work.api_resource.path(key), {"spec": {"text": text}})
    return msgspec.json.decode(body, type=_ChangedObject).metadata.generation


async def _current_version(client: Client) -> str:
    listed = await client.raw(Work.api_resource.path(namespace=NAMESPACE), query={"limit": "1"})
    return msgspec.json.decode(listed, type=_ListResponse).metadata.resource_version


async def run_in_parallel(work: Callable[[int], Coroutine[Any, Any, None]], numbers: Iterable[int]) -> None:
    """Run ``work`` for all numbers with bounded concurrency."""
    remaining = iter(numbers)

    async def worker() -> None:
        for number in remaining:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_PARALLEL_REQUESTS):
            group.create_task(worker())


async def run_at_rate(work: Callable[[int], Coroutine[Any, Any, None]], rate: float, count: int) -> None:
    """Start ``work`` ``count`` times at ``rate`` per second and wait for all."""
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(started_at + number / rate - loop.time())
            group.create_task(work(number))


class _Metadata(msgspec.Struct):
    generation: int


class _ChangedObject(msgspec.Struct):
    metadata: _Metadata


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _ListResponse(msgspec.Struct):
    metadata: _ListMetadata


async def _send(client: Client, method: str, path: str, document: dict[str, Any]) -> bytes:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = msgspec.json.encode(document)
    response = await client.transport.request(
        HttpRequest(method=method, path=path, body=body, content_type=content_type)
    )
    if response.status >= 300:
        raise error_from_status(msgspec.json.decode(response.body, type=ApiStatus))
    return response.body
