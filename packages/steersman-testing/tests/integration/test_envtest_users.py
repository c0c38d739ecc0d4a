"""Users of the real API server have exactly the granted permissions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from steersman.api.core_v1 import ConfigMap, Namespace, Secret
from steersman.client import Client, connect, load_config
from steersman.controller import Permission
from steersman.errors import ConfigurationError, Forbidden
from steersman.meta import ObjectKey, ObjectMeta
from steersman_manifests.rbac import cluster_role, policy_rules
from steersman_testing.envtest import AuthenticatedUser, Envtest

RBAC = "rbac.authorization.k8s.io/v1"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}


async def may_list(environment: Envtest, user: AuthenticatedUser, kind: type[Any], namespace: str = "") -> bool:
    async with environment.client(user) as client:
        try:
            await client.list(kind, namespace=namespace)
        except Forbidden as error:
            assert f'User "{user.name}" cannot list resource' in str(error)
            return False
    return True


async def test_user_without_rules_is_forbidden(envtest: Envtest) -> None:
    user = envtest.user("somebody@example.com", ["readers"])
    assert (user.name, user.groups) == ("somebody@example.com", ("readers",))
    assert user.kubeconfig.stat().st_mode & 0o077 == 0
    async with connect(load_config(user.kubeconfig)) as transport:
        with pytest.raises(Forbidden, match=r'User "somebody@example\.com" cannot list resource "configmaps"'):
            await Client(transport).list(ConfigMap)


async def test_user_with_manager_role_has_its_permissions(envtest: Envtest, envtest_namespace: str) -> None:
    permissions = [Permission(ConfigMap.api_resource, ("list", "create"))]
    operator = envtest.user("operator", roles=[cluster_role("operator", permissions)])
    assert await may_list(envtest, operator, ConfigMap)
    assert not await may_list(envtest, operator, Secret)
    async with envtest.client(operator) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=envtest_namespace)))
        with pytest.raises(Forbidden):
            await client.delete(ConfigMap, ObjectKey(envtest_namespace, "a"))


async def test_rights_in_a_namespace_end_at_its_border(envtest: Envtest, envtest_namespace: str) -> None:
    user = envtest.user("local", rules=[READ], namespace=envtest_namespace)
    assert await may_list(envtest, user, ConfigMap, envtest_namespace)
    assert not await may_list(envtest, user, ConfigMap, "default")
    role = {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "own", "namespace": envtest_namespace}}
    user = envtest.user("owner", roles=[{**role, "rules": [READ]}])
    assert await may_list(envtest, user, ConfigMap, envtest_namespace)
    assert not await may_list(envtest, user, ConfigMap)


async def test_user_rules_are_replaced(envtest: Envtest) -> None:
    user = envtest.user("changing", rules=[READ])
    assert await may_list(envtest, user, ConfigMap)
    envtest.user("changing", rules=[{**READ, "resources": ["secrets"]}])
    assert await may_list(envtest, user, Secret)
    assert not await may_list(envtest, user, ConfigMap)
    envtest.user("changing")
    assert not await may_list(envtest, user, Secret)


async def test_user_with_aggregated_role_has_its_rules(envtest: Envtest) -> None:
    # In a cluster, the controller manager aggregates the rules of view.
    user = envtest.user("reader", roles=["view"])
    assert await may_list(envtest, user, ConfigMap)
    assert not await may_list(envtest, user, Secret)


async def test_concurrent_users_are_isolated(envtest: Envtest) -> None:
    def make(number: int) -> AuthenticatedUser:
        resource = "configmaps" if number % 2 else "secrets"
        return envtest.user(f"user-{number}", rules=[{**READ, "resources": [resource]}])

    users = await asyncio.gather(*(asyncio.to_thread(make, n) for n in range(6)))
    for number, user in enumerate(users):
        assert await may_list(envtest, user, ConfigMap) == bool(number % 2)
        assert await may_list(envtest, user, Secret) != bool(number % 2)


async def test_system_masters_requires_explicit_option(envtest: Envtest) -> None:
    with pytest.raises(ValueError, match="would be a member of system:masters, which bypasses RBAC"):
        envtest.user("master", ["system:masters"])
    user = envtest.user("master", ["system:masters"], allow_masters=True)
    async with envtest.client(user) as client:
        assert (await client.get(Namespace, ObjectKey("", "default"))).metadata.name == "default"


def test_user_invalid_role_raises(envtest: Envtest) -> None:
    with pytest.raises(ConfigurationError, match="ClusterRole nobody does not exist: pass its manifest, or rules"):
        envtest.user("wrong", roles=["nobody"])
    with pytest.raises(ConfigurationError, match="the Role homeless has no namespace"):
        envtest.user("wrong", roles=[{"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "homeless"}}])
    with pytest.raises(ConfigurationError, match="a ConfigMap is not a role"):
        envtest.user("wrong", roles=[{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}])


async def test_rules_of_permissions_are_rules(envtest: Envtest) -> None:
    rules = policy_rules([Permission(Secret.api_resource, ("list",))])
    user = envtest.user("system:serviceaccount:shop:till", rules=rules)
    assert await may_list(envtest, user, Secret)
    assert not await may_list(envtest, user, ConfigMap)
