"""A synchronous script on the real API server."""

from __future__ import annotations

import pytest

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Discovery, MergePatch, SyncClient
from steersman.errors import NotFound
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing.envtest import Envtest

NAMESPACE = "scripts"


@pytest.mark.requirement("programming/scripts")
def test_sync_client_script_on_real_server(envtest: Envtest) -> None:
    key = ObjectKey(NAMESPACE, "words")
    with SyncClient(envtest.config, field_manager="script") as client:
        client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        version = client.list(ConfigMap, namespace=NAMESPACE).resource_version
        client.apply(core.ConfigMap(metadata=meta.ObjectMeta(name="words", namespace=NAMESPACE), data={"a": "b"}))
        client.patch(ConfigMap, key, MergePatch({"data": {"a": "c"}}))
        client.delete(ConfigMap, key)
        types: list[str] = []
        for event in client.watch(ConfigMap, resource_version=version, namespace=NAMESPACE):
            types.append(event.type)
            if event.type == "DELETED":
                break
        assert types == ["ADDED", "MODIFIED", "DELETED"]
        with pytest.raises(NotFound):
            client.get(ConfigMap, key)
        assert client.run(Discovery(client.client).mapping("cm")).kind == "ConfigMap"
