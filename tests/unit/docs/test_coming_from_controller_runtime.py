"""The operator of "Coming from controller-runtime" does what the page says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.main import get_command

from framework_support.documented_code import Pages
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.cache import Cache, CachedClient
from steersman.client import Client, MergePatch
from steersman.controller import ReconcilerContext
from steersman.errors import ConfigurationError
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

PAGE = "how-to/coming-from-controller-runtime.md"
WEBSITE_KEY = ObjectKey("shop", "front")


@pytest.fixture
def websites(pages: Pages) -> Any:
    return pages(PAGE)("websites")


def shop_server(websites: Any, **spec: str) -> tuple[InMemoryApiServer, Manager]:
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(websites.Website)
    server.load(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "shop"}},
        websites.Website(
            metadata=ObjectMeta(name=WEBSITE_KEY.name, namespace=WEBSITE_KEY.namespace),
            spec=websites.WebsiteSpec(**spec),
        ),
    )
    return server, Manager(server, runtime=runtime)


def certificate(server: InMemoryApiServer) -> str:
    found: Any = server.manifest(Deployment, WEBSITE_KEY)
    return found["spec"]["template"]["metadata"]["annotations"]["example.com/certificate"]


@virtual_time
async def test_websites_certificate_rotation_rolls_pods(websites: Any) -> None:
    server, manager = shop_server(websites, image="shop:1", tls_secret="tls")
    websites.setup(manager)
    running = asyncio.create_task(manager.run())
    await manager.runtime.clock.sleep(1)
    before, user = certificate(server), Client(server)
    await user.patch(Secret, ObjectKey("shop", "tls"), MergePatch({"metadata": {"labels": {"renewed": "1"}}}))
    await manager.runtime.clock.sleep(1)
    assert certificate(server) != before
    await user.delete(websites.Website, WEBSITE_KEY)
    await manager.runtime.clock.sleep(1)
    assert server.read(websites.Website, WEBSITE_KEY) is None
    manager.stop()
    await running


@virtual_time
async def test_websites_terminal_error_is_in_status(websites: Any) -> None:
    server, manager = shop_server(websites, image="shop:latest")
    websites.setup(manager)
    running = asyncio.create_task(manager.run())
    await manager.runtime.clock.sleep(1)
    site = server.read(websites.Website, WEBSITE_KEY)
    assert site is not None
    ready = find_condition(site.status.conditions, "Ready")
    assert ready is not None and "name a version" in ready.message
    assert server.read(Deployment, WEBSITE_KEY) is None
    manager.stop()
    await running


@virtual_time
async def test_websites_without_change_sends_no_writes(websites: Any) -> None:
    server, manager = shop_server(websites, image="shop:1")
    websites.setup(manager)
    running = asyncio.create_task(manager.run())
    await manager.runtime.clock.sleep(30)
    manager.stop()
    await running
    again = Manager(server, runtime=manager.runtime)
    websites.setup(again)
    written, running = len(server.writes), asyncio.create_task(again.run())
    await manager.runtime.clock.sleep(30)
    assert server.writes[written:] == []
    again.stop()
    await running


@virtual_time
async def test_websites_verbs_match_page(pages: Pages, websites: Any) -> None:
    server, manager = shop_server(websites, image="shop:1")
    live = Client(server)
    cached = CachedClient(live, Cache(live, runtime=manager.runtime))
    await pages(PAGE)("verbs").verbs(cached)
    assert server.read(websites.Website, WEBSITE_KEY) is None


@virtual_time
async def test_websites_count_is_updated(websites: Any) -> None:
    server, manager = shop_server(websites, image="shop:1")
    reconcilers: list[Any] = []

    def noted(context: ReconcilerContext) -> Any:
        reconcilers.append(websites.WebsiteReconciler(context))
        return reconcilers[0]

    manager.controller(websites.Website).complete(noted)
    site = server.read(websites.Website, WEBSITE_KEY)
    outcomes = [await websites.count_visit(reconcilers[0], site) for _ in range(2)]
    assert outcomes == ["created", "patched"]
    visits = server.read(ConfigMap, ObjectKey("shop", "front-visits"))
    assert visits is not None and visits.data == {"visits": "2"}


def test_page_statements_about_roles_and_secrets_hold(pages: Pages, websites: Any) -> None:
    page = pages(PAGE)
    server, manager = shop_server(websites, image="shop:1")
    roles: list[Any] = page("role").roles(manager)
    allowed = {resource: rule["verbs"] for rule in roles[0]["rules"] for resource in rule.get("resources", ())}
    assert {"create", "patch", "watch"} <= set(allowed["deployments"])
    assert roles[1]["kind"] == "Role"
    parsed = get_command(page("main").app).make_context("operator", ["--leader-elect", "--zap-log-level=debug"])
    assert parsed.params["leader_elect"] is True
    # The cache follows the options, and does not keep all Secrets.
    options = page("options")
    manager = Manager(server, options.OPTIONS)
    options.setup(manager)
    manager.cache.informer(Secret)
    with pytest.raises(ConfigurationError, match="all Secrets"):
        Manager(server, ManagerOptions()).cache.informer(Secret)


def test_websites_page_test_passes(pages: Pages, websites: Any) -> None:
    pages(PAGE)("test_websites").test_a_website_is_deployed_whatever_fails_on_the_way()
