"""Users of the in-memory server: granted roles and recorded denials."""

from __future__ import annotations

import pytest

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.roles import policy_rule, role_manifest
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.rbac_v1 import PolicyRule, Role
from steersman.client import Client
from steersman.controller import Permission
from steersman.errors import ApiError, Forbidden
from steersman.meta import ObjectKey, ObjectMeta
from steersman_manifests.rbac import cluster_role, leader_election_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

BOT = "system:serviceaccount:default:bot"
READER = cluster_role("reader", [Permission(ConfigMap.api_resource, ("get", "list", "watch"))])


@pytest.fixture
def server() -> InMemoryApiServer:
    server = InMemoryApiServer(virtual_runtime())
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    server.load(ConfigMap(metadata=ObjectMeta(name="a", namespace="shop")))
    return server


@virtual_time
async def test_granted_rules_allow_and_others_are_forbidden(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER)
    await client.get(ConfigMap, ObjectKey("shop", "a"))
    assert server.rbac_denials == []
    with pytest.raises(Forbidden):
        await client.list(Pod, namespace="shop")
    (rejected,) = server.rbac_denials
    assert rejected == (
        f'pods is forbidden: User "{BOT}" cannot list resource "pods" in API group "" in the namespace "shop"'
    )


@virtual_time
async def test_grant_in_namespace_allows_only_there(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER, namespace="shop")
    await client.list(ConfigMap, namespace="shop")
    for namespace in ("default", ""):
        with pytest.raises(Forbidden):
            await client.list(ConfigMap, namespace=namespace)


@virtual_time
async def test_grant_default_role_allows_its_rules(server: InMemoryApiServer) -> None:
    server.grant("jane", "view", namespace="shop")
    jane = Client(server.as_user("jane"))
    await jane.list(Pod, namespace="shop")
    with pytest.raises(Forbidden):
        await jane.delete(ConfigMap, ObjectKey("shop", "a"))


@virtual_time
async def test_grant_role_applies_to_its_namespace(server: InMemoryApiServer) -> None:
    server.grant(BOT, leader_election_role("elections", "lease"), namespace="shop")
    here = Api(server.as_user(BOT), "shop")
    (await here.create("leases", {"metadata": {"name": "lease"}})).expect_success()
    (await here.get("leases", "lease")).expect_success()
    (await here.get("leases", "other")).expect_error(403, "Forbidden")
    (await Api(server.as_user(BOT), "default").get("leases", "lease")).expect_error(403, "Forbidden")


@virtual_time
async def test_grant_again_replaces_role(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER)
    server.grant(BOT, cluster_role("reader", [Permission(Pod.api_resource, ("list",))]))
    await client.list(Pod, namespace="shop")
    with pytest.raises(Forbidden):
        await client.list(ConfigMap, namespace="shop")


@virtual_time
async def test_loaded_roles_and_bindings_are_enforced(server: InMemoryApiServer) -> None:
    manifest: Json = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "bot", "namespace": "shop"}}
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}
    server.load(
        {**manifest, "kind": "Role", "rules": [policy_rule("list", "configmaps")]},
        {
            **manifest,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bot"},
            "subjects": [subject],
        },
    )
    await Client(server.as_user(BOT)).list(ConfigMap, namespace="shop")
    assert server.rbac_denials == []


@virtual_time
async def test_denials_of_all_kinds_are_recorded(server: InMemoryApiServer) -> None:
    roles = Permission(Role.api_resource, ("create",))
    server.grant(BOT, cluster_role("maker", [roles, Permission(ConfigMap.api_resource, ("patch",))]))
    bot = Api(server.as_user(BOT), "shop")
    (await bot.create("roles", role_manifest("more", policy_rule("get", "secrets")))).expect_error(403, "Forbidden")
    (await bot.apply("configmaps", {"apiVersion": "v1", **config_map("new")})).expect_error(403, "Forbidden")
    with pytest.raises(Forbidden):
        await bot.events("pods", 1)
    escalation, creation, watch = server.rbac_denials
    assert "is attempting to grant RBAC permissions not currently held" in escalation
    assert 'cannot create resource "configmaps"' in creation
    assert 'cannot watch resource "pods"' in watch
    server.rbac_denials.clear()
    (await bot.get("pods", "a")).expect_error(403, "Forbidden")
    assert len(server.rbac_denials) == 1


def test_grant_of_non_role_raises(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match="a ConfigMap is not a role"):
        server.grant(BOT, {"kind": "ConfigMap", "metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="Role elections has no namespace"):
        server.grant(BOT, leader_election_role("elections", "lease"))
    with pytest.raises(ApiError, match="not found"):
        server.grant(BOT, leader_election_role("elections", "lease"), namespace="nowhere")


@virtual_time
async def test_role_with_generate_name_cannot_escalate(server: InMemoryApiServer) -> None:
    server.grant(BOT, cluster_role("roles", [Permission(Role.api_resource, ("create",))]))
    bot = Client(server.as_user(BOT))
    with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
        metadata = ObjectMeta(generate_name="r-", namespace="shop")
        await bot.create(
            Role(metadata=metadata, rules=(PolicyRule(api_groups=("",), resources=("pods",), verbs=("get",)),))
        )
