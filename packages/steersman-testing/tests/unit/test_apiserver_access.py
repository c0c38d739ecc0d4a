"""Users of the in-memory server: what tests give them, and what they learn of what was refused."""

from __future__ import annotations

import pytest

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.roles import role, rule
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.rbac_v1 import PolicyRule, Role
from steersman.client import Client
from steersman.controller import Permission
from steersman.errors import ApiError, Forbidden
from steersman.meta import ObjectKey, ObjectMeta
from steersman.rbac import cluster_role, leader_election_role
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
async def test_what_is_granted_is_allowed_and_nothing_else(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER)
    await client.get(ConfigMap, ObjectKey("shop", "a"))
    assert server.refused == []
    with pytest.raises(Forbidden):
        await client.list(Pod, namespace="shop")
    (refused,) = server.refused
    assert refused == (
        f'pods is forbidden: User "{BOT}" cannot list resource "pods" in API group "" in the namespace "shop"'
    )


@virtual_time
async def test_in_one_namespace(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER, namespace="shop")
    await client.list(ConfigMap, namespace="shop")
    for namespace in ("default", ""):
        with pytest.raises(Forbidden):
            await client.list(ConfigMap, namespace=namespace)


@virtual_time
async def test_default_roles_by_name(server: InMemoryApiServer) -> None:
    server.grant("jane", "view", namespace="shop")
    jane = Client(server.as_user("jane"))
    await jane.list(Pod, namespace="shop")
    with pytest.raises(Forbidden):
        await jane.delete(ConfigMap, ObjectKey("shop", "a"))


@virtual_time
async def test_a_role_is_of_its_namespace(server: InMemoryApiServer) -> None:
    server.grant(BOT, leader_election_role("elections", "lease"), namespace="shop")
    here = Api(server.as_user(BOT), "shop")
    (await here.create("leases", {"metadata": {"name": "lease"}})).ok()
    (await here.get("leases", "lease")).ok()
    (await here.get("leases", "other")).refused(403, "Forbidden")
    (await Api(server.as_user(BOT), "default").get("leases", "lease")).refused(403, "Forbidden")


@virtual_time
async def test_granted_again_a_role_says_what_it_said_last(server: InMemoryApiServer) -> None:
    client = Client(server.as_user(BOT))
    server.grant(BOT, READER)
    server.grant(BOT, cluster_role("reader", [Permission(Pod.api_resource, ("list",))]))
    await client.list(Pod, namespace="shop")
    with pytest.raises(Forbidden):
        await client.list(ConfigMap, namespace="shop")


@virtual_time
async def test_roles_and_bindings_can_be_loaded_as_they_are_deployed(server: InMemoryApiServer) -> None:
    manifest: Json = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "bot", "namespace": "shop"}}
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}
    server.load(
        {**manifest, "kind": "Role", "rules": [rule("list", "configmaps")]},
        {
            **manifest,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bot"},
            "subjects": [subject],
        },
    )
    await Client(server.as_user(BOT)).list(ConfigMap, namespace="shop")
    assert server.refused == []


@virtual_time
async def test_every_kind_of_refusal_is_noted(server: InMemoryApiServer) -> None:
    roles = Permission(Role.api_resource, ("create",))
    server.grant(BOT, cluster_role("maker", [roles, Permission(ConfigMap.api_resource, ("patch",))]))
    bot = Api(server.as_user(BOT), "shop")
    (await bot.create("roles", role("more", rule("get", "secrets")))).refused(403, "Forbidden")
    (await bot.apply("configmaps", {"apiVersion": "v1", **config_map("new")})).refused(403, "Forbidden")
    with pytest.raises(Forbidden):
        await bot.events("pods", 1)
    escalation, creation, watch = server.refused
    assert "is attempting to grant RBAC permissions not currently held" in escalation
    assert 'cannot create resource "configmaps"' in creation
    assert 'cannot watch resource "pods"' in watch
    server.refused.clear()
    (await bot.get("pods", "a")).refused(403, "Forbidden")
    assert len(server.refused) == 1


def test_what_is_no_role_cannot_be_granted(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match="a ConfigMap is no role"):
        server.grant(BOT, {"kind": "ConfigMap", "metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="the Role elections has no namespace"):
        server.grant(BOT, leader_election_role("elections", "lease"))
    with pytest.raises(ApiError, match="not found"):
        server.grant(BOT, leader_election_role("elections", "lease"), namespace="nowhere")


@virtual_time
async def test_a_role_without_a_name_yet_that_gives_too_much_is_refused(server: InMemoryApiServer) -> None:
    server.grant(BOT, cluster_role("roles", [Permission(Role.api_resource, ("create",))]))
    bot = Client(server.as_user(BOT))
    with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
        metadata = ObjectMeta(generate_name="r-", namespace="shop")
        await bot.create(
            Role(metadata=metadata, rules=(PolicyRule(api_groups=("",), resources=("pods",), verbs=("get",)),))
        )
