"""Skipped applies are no-ops, after random applies and patches of two managers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from framework_support.apply_configurations import NAMESPACE
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Service
from steersman.client import Client, MergePatch, connect
from steersman.client.encode import with_owner
from steersman.client.managed_fields import apply_would_change
from steersman.errors import ApiError
from steersman.meta import Object, ObjectKey, unstructured
from steersman_testing.envtest import Envtest

RUNS, STEPS = 12, 10


class RandomManifests(random.Random):
    """Generates configurations that differ in a few fields."""

    def random_subset(self, **fields: Any) -> dict[str, Any]:
        """Return a random subset of the fields."""
        return {name: value for name, value in fields.items() if self.random() < 0.5}

    def random_map(self) -> dict[str, str]:
        return {word: self.choice("12") for word in self.sample("abc", self.randint(1, 3))}

    def metadata(self) -> dict[str, Any]:
        return self.random_subset(labels=self.random_map(), annotations=self.random_map())

    def config_map(self) -> dict[str, Any]:
        return {"metadata": self.metadata(), "data": self.random_map()}

    def service(self) -> dict[str, Any]:
        ports = [
            {
                "name": name,
                "port": 80 + ord(name),
                **self.random_subset(protocol="TCP", targetPort=self.choice([80, "http"])),
            }
            for name in self.sample("abc", self.randint(1, 3))
        ]
        spec = {
            "ports": ports,
            **self.random_subset(selector=self.random_map(), publishNotReadyAddresses=self.random() < 0.5),
        }
        return {"metadata": self.metadata(), "spec": spec}

    def deployment(self) -> dict[str, Any]:
        template = {
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "containers": [self._container(name) for name in self.sample("ab", self.randint(1, 2))],
                "volumes": [{"name": "v", **self.random_subset(emptyDir=self.choice([{}, {"sizeLimit": "1Gi"}]))}],
                **self.random_subset(
                    tolerations=[{"key": self.choice("ab"), "operator": "Exists"}], nodeSelector=self.random_map()
                ),
            },
        }
        more = self.random_subset(replicas=self.choice([0, 1, 2]), paused=self.random() < 0.5, minReadySeconds=0)
        spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template, **more}
        return {"metadata": self.metadata(), "spec": spec}

    def _container(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "image": self.choice(["i:1", "i:2"]),
            **self.random_subset(
                env=[{"name": each, "value": self.choice(["", "1"])} for each in self.sample("abc", 2)],
                args=self.choice([["a"], ["a", "b"]]),
                resources={"requests": {"memory": self.choice(["1Gi", "1024Mi"])}},
                securityContext=self.choice([{"privileged": False}, {"runAsUser": 0}]),
            ),
        }


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (ConfigMap, RandomManifests.config_map),
        (Service, RandomManifests.service),
        (Deployment, RandomManifests.deployment),
    ],
    ids=["config maps", "services", "deployments"],
)
async def test_skipped_applies_would_not_change_the_object(
    envtest: Envtest, kind: type[Object], make: Callable[[RandomManifests], dict[str, Any]]
) -> None:
    void = 0
    async with connect(envtest.config) as transport:
        ours, theirs = (Client(transport, field_manager=name) for name in ("ours", "theirs"))
        for seed in range(RUNS):
            manifests, key = RandomManifests(seed), ObjectKey(NAMESPACE, f"imagined-{seed}")
            declared = [_with_key(make(manifests), key) for _ in range(2)]
            await ours.apply(unstructured(kind.api_resource).of(declared[0]))
            for _ in range(STEPS):
                # The API server rejects some random changes.
                with suppress(ApiError):
                    await _apply_random_change(
                        manifests, ours, theirs, kind, declared, _with_key(make(manifests), key)
                    )
                void += await _is_no_op(ours, kind, manifests.choice(declared), key)
            await ours.delete(kind, key)
    assert void > RUNS


async def _apply_random_change(
    manifests: RandomManifests,
    ours: Client,
    theirs: Client,
    kind: type[Object],
    declared: list[dict[str, Any]],
    other: dict[str, Any],
) -> None:
    untyped = unstructured(kind.api_resource)
    match manifests.randrange(5):
        case 0:
            await theirs.apply(untyped.of(other))
        case 1:
            await theirs.patch(untyped, untyped.of(other).key, MergePatch(other))
        case 2:
            await ours.patch(untyped, untyped.of(other).key, MergePatch(other))
        case _:
            await ours.apply(untyped.of(manifests.choice(declared)))


async def _is_no_op(ours: Client, kind: type[Object], declared: dict[str, Any], key: ObjectKey) -> bool:
    """Return True if an apply would be skipped. Then check that it changes nothing."""
    config = unstructured(kind.api_resource).of(declared)
    present = await ours.get(kind, key)
    if apply_would_change(with_owner(config), present, "ours"):
        return False
    await ours.apply(config)
    applied = await ours.get(kind, key)
    # Ignore the resourceVersion: any write may merge managedFields entries of earlier updates.
    assert _without_versions(applied) == _without_versions(present), declared
    return True


def _without_versions(obj: Object) -> Object:
    applied = tuple(entry for entry in obj.metadata.managed_fields if entry.operation == "Apply")
    return replace(obj, metadata=replace(obj.metadata, resource_version="", managed_fields=applied))


def _with_key(content: dict[str, Any], key: ObjectKey) -> dict[str, Any]:
    return content | {"metadata": content["metadata"] | {"name": key.name, "namespace": key.namespace}}
