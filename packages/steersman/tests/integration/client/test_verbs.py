"""Verbs on the real API server, and features that older servers lack."""

from __future__ import annotations

import itertools
import os

import pytest

from apiserver_cases.installation import make_namespace
from framework_support.client_cases import CASES, config_map
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache
from steersman.client import Client, connect
from steersman.errors import Invalid
from steersman.meta import ObjectKey, metadata_only
from steersman.observability.runtime import Runtime
from steersman_testing.envtest import Envtest

_numbers = itertools.count()


@pytest.mark.parametrize("case", CASES)
async def test_verbs_on_real_server(case: str, envtest_of_cases: Envtest) -> None:
    async with connect(envtest_of_cases.config) as transport:
        namespace = f"verbs-{os.getpid()}-{next(_numbers)}"
        await make_namespace(transport, namespace)
        await CASES[case](Client(transport, field_manager="tester"), namespace)


async def test_older_server_without_watch_list_pages() -> None:
    """Kubernetes 1.33 disables WatchList by default."""
    with Envtest.start(arguments={"emulated-version": "1.33"}) as older:
        async with connect(older.config) as transport:
            client = Client(transport, field_manager="tester")
            for name in "abc":
                await client.create(config_map("default", name, l="x"))
            stream = client.watch(ConfigMap, namespace="default", send_initial_events=True)
            with pytest.raises(Invalid, match="sendInitialEvents is forbidden"):
                await anext(stream)
            pages = [p async for p in client.pages(ConfigMap, namespace="default", label_selector="l", page_size=2)]
            assert [len(p.items) for p in pages] == [2, 1]
            cache = Cache(client, runtime=Runtime(), namespaces=("default",))
            informer = cache.informer(metadata_only(ConfigMap))
            cache.start()
            try:
                await cache.wait_for_sync(timeout=20)
                assert informer.store.get(ObjectKey("default", "b")) is not None
            finally:
                await cache.stop()
