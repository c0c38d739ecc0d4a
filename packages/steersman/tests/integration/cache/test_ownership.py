"""Apply with an owner on the real API server, without a cache."""

from __future__ import annotations

import pytest

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache, CachedClient
from steersman.cache.ownership import OwnershipCheck
from steersman.client import Client
from steersman.dependents import Dependents
from steersman.errors import AlreadyOwned, NotOwned
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.envtest import Envtest


async def test_foreign_objects_are_not_taken_over(envtest: Envtest, envtest_namespace: str) -> None:
    def config_map(name: str) -> core.ConfigMap:
        return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=envtest_namespace), data={"a": "1"})

    async with envtest.client() as live:
        client = CachedClient(live, Cache(live, runtime=Runtime()))
        first, second = [await client.apply(config_map(name)) for name in ("first", "second")]
        await client.apply(config_map("of-first"), owner=first)
        await client.apply(config_map("unowned"))
        with pytest.raises(NotOwned):
            await client.apply(config_map("unowned"), owner=first)
        adopted = await client.apply(config_map("unowned"), owner=first, adopt=True)
        assert adopted.is_controlled_by(first)
        with pytest.raises(AlreadyOwned, match="controlled by ConfigMap first, not by ConfigMap second"):
            await client.apply(config_map("of-first"), owner=second)
        with pytest.raises(AlreadyOwned, match="controlled by ConfigMap first, not by ConfigMap second"):
            await client.apply(config_map("of-first"), owner=second, adopt=True)


async def test_lost_race_against_other_operator_raises(
    envtest: Envtest, envtest_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def require(*args: object, **options: object) -> bool:
        return False

    config = core.ConfigMap(metadata=meta.ObjectMeta(name="shared", namespace=envtest_namespace), data={"a": "1"})
    async with envtest.client() as live:
        for number, manager in enumerate(("first", "second")):
            operator = Client(live.transport, field_manager=manager)
            client = CachedClient(operator, Cache(operator, runtime=Runtime()))
            owner = await client.apply(
                core.ConfigMap(metadata=meta.ObjectMeta(name=manager, namespace=envtest_namespace))
            )
            if number == 0:
                await client.apply(config, owner=owner)
                continue
            # The object appears after the check.
            monkeypatch.setattr(OwnershipCheck, "require", require)
            with pytest.raises(AlreadyOwned, match="Only one reference can have Controller set to true"):
                await client.apply(config, owner=owner)


async def test_undeclared_dependents_are_pruned(envtest: Envtest, envtest_namespace: str) -> None:
    def config_map(name: str) -> core.ConfigMap:
        return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=envtest_namespace), data={"a": "1"})

    async with envtest.client() as live:
        client = CachedClient(live, Cache(live, runtime=Runtime()))
        owner = await client.apply(config_map("owner"))
        dependents = Dependents(client, prunable=(ConfigMap,))
        assert (await dependents.apply(owner, [config_map("a"), config_map("b"), config_map("c")])).ready
        state = await dependents.apply(owner, [config_map("a"), config_map("b")])
        assert [str(pruned) for pruned in state.pruned] == [f"ConfigMap {envtest_namespace}/c"]
        assert await client.get_or_none(ConfigMap, ObjectKey(envtest_namespace, "c")) is None
