"""Dependents: steps, state, declaration and pruning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import (
    NAMESPACE,
    ControllerEnv,
    drain_event_loop,
    eventually,
    key,
    running,
)
from framework_support.widget import Widget
from steersman.api.apply import apps, core, meta, rbac
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Namespace, PersistentVolumeClaim, Secret, Service
from steersman.api.events_v1 import Event
from steersman.api.rbac_v1 import ClusterRole
from steersman.client import HttpRequest, MergePatch
from steersman.controller import Reconciler, ReconcilerContext, RequestReconciler, Result
from steersman.dependents import (
    DEPENDENT_OF_LABEL,
    BlockingDependent,
    Dependent,
    Dependents,
    DependentsState,
    PrunedObject,
    Readiness,
)
from steersman.errors import AlreadyOwned, ConfigurationError, Conflict, NotOwned
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, encode, metadata_only, unstructured
from steersman_manifests.rbac import policy_rules
from steersman_testing import virtual_time


def config_map(name: str, value: str = "1") -> core.ConfigMap:
    return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE), data={"a": value})


def config_maps(*names: str) -> tuple[core.ConfigMap, ...]:
    return tuple(config_map(name) for name in names)


def has_value(value: str) -> Callable[[ConfigMap], bool | str]:
    return lambda found: found.data["a"] == value or f"a is not {value}"


class Shop:
    """A widget and its dependents."""

    def __init__(self) -> None:
        self.env = ControllerEnv()
        self.env.create_widgets("shop", "other")
        self.reports: list[DependentsState] = []
        self.dependents = Dependents(
            self.env.cached,
            controller="widget",
            owned=(ConfigMap, Service),
            prunable=(ConfigMap,),
            report=lambda _, state: self.reports.append(state),
        )

    @property
    def owner(self) -> Widget:
        return self.env.read_widget("shop")

    @property
    def names(self) -> set[str]:
        return {found.metadata.name for found in self.env.server.read_all(ConfigMap, NAMESPACE)}

    async def apply(self, *steps: Any, **options: Any) -> DependentsState:
        return await self.dependents.apply(self.owner, steps, **options)


@virtual_time
async def test_step_waits_for_previous_step() -> None:
    shop = Shop()
    first = Dependent(config_map("a"), ready=has_value("2"))
    async with shop.env.running_cache(ConfigMap):
        state = await shop.apply((first, config_map("b")), config_map("c"))
        assert not state.ready
        assert [str(b) for b in state.blocking] == ["ConfigMap orders/a: a is not 2"]
        assert [obj.metadata.name for obj in state.objects] == ["a", "b"]
        assert shop.names == {"a", "b"}
        condition = state.condition("Ready")
        assert (condition.status, condition.reason, condition.message) == (
            "False",
            "Progressing",
            "ConfigMap orders/a: a is not 2",
        )
        ready = Dependent(config_map("a", "2"), ready=has_value("2"))
        state = await shop.apply((ready, config_map("b")), config_map("c"))
        assert state.ready
        assert state.condition("Ready").message == "All 3 dependents are ready."
        assert shop.names == {"a", "b", "c"}
        assert shop.reports[-1] is state


@pytest.mark.parametrize(("result", "message"), [(False, "it is not ready"), ("", "it is not ready"), ("x", "x")])
def test_readiness_has_a_message(result: bool | str, message: str) -> None:
    env = ControllerEnv()
    env.create_widgets("shop")
    dependent = Dependent(config_map("a"), ready=lambda _: result)
    assert dependent.readiness(env.read_widget("shop")) == Readiness(ready=False, message=message)


def deployment(image: str) -> apps.Deployment:
    labels = {"app": "a"}
    pod = core.PodSpec(containers=[core.Container(name="a", image=image)])
    template = core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=pod)
    spec = apps.DeploymentSpec(replicas=1, selector=meta.LabelSelector(match_labels=labels), template=template)
    return apps.Deployment(metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE), spec=spec)


@virtual_time
async def test_ready_function_waits_for_observed_generation() -> None:
    env = ControllerEnv()
    env.create_widgets("shop")
    dependents = Dependents(env.cached)

    def apply(image: str) -> Awaitable[DependentsState]:
        first = Dependent(deployment(image), ready=lambda found: bool(found.status.ready_replicas))
        return dependents.apply(env.read_widget("shop"), [first, config_map("b")])

    async with env.running_cache(Deployment, ConfigMap):
        await apply("a:1")
        status = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1}
        await env.client.patch(Deployment, key("a"), MergePatch({"status": status}), subresource="status")
        assert (await apply("a:1")).ready
        state = await apply("a:2")
        assert [str(each) for each in state.blocking] == ["Deployment orders/a: generation 2 is not observed yet"]


@pytest.mark.requirement("overview/owner-references")
@virtual_time
async def test_dependents_have_owner_and_label() -> None:
    shop = Shop()
    kind = unstructured(ConfigMap.api_resource)
    plain = kind.of({"metadata": {"name": "b", "namespace": NAMESPACE, "labels": {"app": "x"}}})
    labelled = core.ConfigMap(metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE, labels={"app": "x"}))
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(labelled, plain)
        for name in "ab":
            found = shop.env.server.read(ConfigMap, key(name))
            assert found is not None and found.is_controlled_by(shop.owner)
            assert found.metadata.labels == {"app": "x", DEPENDENT_OF_LABEL: "widget"}


@virtual_time
async def test_empty_labels_of_yaml_receive_the_label() -> None:
    shop = Shop()
    empty = unstructured(ConfigMap.api_resource).of(
        {"metadata": {"name": "a", "namespace": NAMESPACE, "labels": None}}
    )
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(empty)
        found = shop.env.server.read(ConfigMap, key("a"))
        assert found is not None and found.metadata.labels == {DEPENDENT_OF_LABEL: "widget"}


@virtual_time
async def test_undeclared_dependent_is_pruned() -> None:
    shop = Shop()
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(config_maps("a", "b", "c"))
        # Nothing is pruned while a step blocks.
        state = await shop.apply(Dependent(config_map("a"), ready=lambda _: False), config_map("b"))
        assert not state.pruned and shop.names == {"a", "b", "c"}
        state = await shop.apply(config_maps("a", "b"))
        assert state.ready and state.pruned == (PrunedObject("ConfigMap", key("c")),)
        assert shop.names == {"a", "b"}


@virtual_time
async def test_prune_deletes_objects_of_a_removed_kind() -> None:
    """The code applies no ConfigMap anymore. Only ``.owns(ConfigMap, prune=True)`` names the kind."""
    shop = Shop()
    ports = [core.ServicePort(port=80)]
    service = core.Service(
        metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE), spec=core.ServiceSpec(ports=ports)
    )
    async with shop.env.running_cache(ConfigMap, Service):
        await shop.apply(service, config_map("b"))
        state = await shop.apply(service)
        assert state.ready and state.pruned == (PrunedObject("ConfigMap", key("b")),)
        assert shop.names == set()


@virtual_time
async def test_prune_spares_cluster_scoped_object_with_namespace() -> None:
    env = ControllerEnv()
    dependents = Dependents(env.cached, controller="widget", owned=(ClusterRole,), prunable=(ClusterRole,))
    owner = await env.client.get(Namespace, ObjectKey("", NAMESPACE))
    # The API server removes the namespace.
    roles = [rbac.ClusterRole(metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE)) for name in ("a", "b")]
    async with env.running_cache(ClusterRole):
        for _ in range(2):
            state = await dependents.apply(owner, [tuple(roles)])
            assert (state.ready, state.pruned) == (True, ())
    assert [role.metadata.name for role in env.server.read_all(ClusterRole)] == ["a", "b"]


@virtual_time
async def test_prune_spares_foreign_objects() -> None:
    shop = Shop()
    async with shop.env.running_cache(ConfigMap):
        cached = shop.env.cached
        await shop.apply(config_maps("a", "b", "unlabelled", "orphan"))
        other = Dependents(cached, controller="widget", prunable=(ConfigMap,))
        await other.apply(shop.env.read_widget("other"), [config_map("of-other")])
        another_controller = Dependents(cached, controller="else", prunable=(ConfigMap,))
        await another_controller.apply(shop.owner, [config_map("of-else")])
        await cached.apply(config_map("by-hand"), owner=shop.owner)
        remove_label = MergePatch({"metadata": {"labels": {DEPENDENT_OF_LABEL: None}}})
        await cached.patch(ConfigMap, key("unlabelled"), remove_label)
        await cached.patch(ConfigMap, key("orphan"), MergePatch({"metadata": {"ownerReferences": None}}))
        state = await shop.apply(config_maps("a", "b"))
        assert state.ready and not state.pruned
        assert shop.names == {"a", "b", "unlabelled", "orphan", "of-other", "of-else", "by-hand"}


@virtual_time
async def test_prune_of_more_than_half_is_stopped() -> None:
    shop = Shop()
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(config_maps("a", "b", "c"))
        state = await shop.apply(config_map("a"))
        assert not state.ready and state.reason == "PruneStopped"
        assert state.message == (
            "2 of 3 dependents are not declared, too many to delete at once: ConfigMap orders/b; ConfigMap orders/c. "
            "Delete them, or restore their declaration."
        )
        assert not (await shop.apply()).ready
        assert shop.names == {"a", "b", "c"}
        assert (await shop.apply(config_map("a"), prune_limit=1.0)).ready
        assert shop.names == {"a"}


@virtual_time
async def test_prune_limit_ignores_terminating_objects() -> None:
    shop = Shop()
    names = "abcdefgh"
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(config_maps(*names))
        for name in names[4:]:
            await shop.env.cached.patch(ConfigMap, key(name), MergePatch({"metadata": {"finalizers": ["x.io/y"]}}))
        assert len((await shop.apply(config_maps(*names[:4]))).pruned) == 4
        state = await shop.apply(config_map("a"))
        assert state.message.startswith("3 of 4 dependents are not declared")


@virtual_time
async def test_prune_stopped_is_reported() -> None:
    env = ControllerEnv()
    env.create_widgets("shop")

    class Fading(Reconciler[Widget]):
        """Ignores the state of its dependents."""

        async def reconcile(self, obj: Widget) -> Result:
            declared = () if env.server.read(ConfigMap, key("a")) else config_maps("b", "a")
            await self.dependents.apply(obj, [declared])
            return Result(requeue_after=5)

    manager = Manager(env.server, runtime=env.runtime)
    manager.controller(Widget).owns(ConfigMap, prune=True).complete(Fading)
    note = (
        "2 of 2 dependents are not declared, too many to delete at once: ConfigMap orders/a; ConfigMap orders/b. "
        "Delete them, or restore their declaration."
    )
    with capture_logs() as lines:
        async with running(manager):
            await asyncio.sleep(30)
    assert ("prune stopped", note) in [(line["event"], line.get("reason")) for line in lines]
    (event,) = env.server.read_all(Event, NAMESPACE)
    assert (event.type, event.reason, event.regarding.name, event.note) == ("Warning", "PruneStopped", "shop", note)
    assert manager.controllers[0].recent()[-1].to_builtins()["unpruned_dependents"] == [
        {"kind": "ConfigMap", "object": "orders/a"},
        {"kind": "ConfigMap", "object": "orders/b"},
    ]


@virtual_time
async def test_prune_of_changed_object_conflicts() -> None:
    shop = Shop()
    async with shop.env.running_cache(ConfigMap):
        await shop.apply(config_maps("a", "b"))
        # At once, so that the watch does not deliver the change before the delete is sent.
        path, remove = ConfigMap.api_resource.path(key("b")), {"metadata": {"labels": {DEPENDENT_OF_LABEL: None}}}
        body, content_type = encode(remove), "application/merge-patch+json"
        shop.env.server.handle(HttpRequest(method="PATCH", path=path, body=body, content_type=content_type))
        with pytest.raises(Conflict):
            await shop.apply(config_map("a"))
        assert shop.names == {"a", "b"}


@pytest.mark.parametrize(("owner", "error"), [(None, NotOwned), ("other", AlreadyOwned)])
@virtual_time
async def test_dependent_with_foreign_name_raises(owner: str | None, error: type[Exception]) -> None:
    shop = Shop()
    async with shop.env.running_cache(ConfigMap):
        controller = shop.env.read_widget(owner) if owner else None
        await shop.env.cached.apply(config_map("a", "foreign"), owner=controller)
        with pytest.raises(error):
            await shop.apply(config_map("a"))


def test_state_with_failed_dependent_is_failed() -> None:
    blocking = tuple(BlockingDependent("Job", key(str(n)), "it waits", failed=n == 3) for n in range(7))
    state = DependentsState(blocking=blocking)
    assert state.reason == "Failed"
    assert state.message.startswith("Job orders/0: it waits; ") and state.message.endswith("; and 2 more")


@virtual_time
async def test_invalid_declarations_raise() -> None:
    shop = Shop()
    with pytest.raises(ValueError, match="ConfigMap orders/a is declared twice"):
        await shop.apply(config_map("a"), (config_map("b"), config_map("a")))
    with pytest.raises(ValueError, match="prune_limit must be between 0 and 1, not 2"):
        await shop.apply(prune_limit=2)
    with pytest.raises(TypeError, match="a step must be an object, a Dependent, or a tuple of them, not a list"):
        await shop.apply([config_map("a")])
    secret = core.Secret(metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE))
    with pytest.raises(ConfigurationError, match=r"declare \.owns\(Secret\)"):
        await shop.apply(secret)
    with pytest.raises(ConfigurationError, match="'a b' is not a label value"):
        await Dependents(shop.env.cached, controller="a b").apply(shop.owner, [])
    assert shop.names == set()


@virtual_time
async def test_prune_spares_dependents_of_other_operators() -> None:
    env = ControllerEnv()
    env.create_widgets("shop")

    def operator(name: str) -> Manager:
        async def reconcile(ctx: ReconcilerContext, obj: Widget) -> None:
            await ctx.dependents.apply(obj, [config_map(name)])

        manager = Manager(env.server, ManagerOptions(name=name), env.runtime)
        manager.controller(Widget).owns(ConfigMap, prune=True).complete(reconcile)
        return manager

    async with running(operator("shops")), running(operator("pages")):
        await drain_event_loop()
        await eventually(lambda: len(env.server.read_all(ConfigMap, NAMESPACE)) == 2)
        await drain_event_loop()
        assert [request.path for request in env.server.requests if request.method == "DELETE"] == []
    labels = {found.metadata.labels[DEPENDENT_OF_LABEL] for found in env.server.read_all(ConfigMap, NAMESPACE)}
    assert labels == {"shops.widget", "pages.widget"}


def test_long_label_value_of_prunable_kinds_raises() -> None:
    env = ControllerEnv()
    manager = Manager(env.server, ManagerOptions(name="operator-" + "a" * 50), env.runtime)
    manager.controller(Widget).named("without-prune").owns(ConfigMap).complete(IdleReconciler)
    builder = manager.controller(Widget).owns(ConfigMap, prune=True)
    with pytest.raises(ConfigurationError, match="is not a label value: set another controller name"):
        builder.complete(IdleReconciler)


class IdleReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: ObjectKey) -> None:
        """Do nothing."""


def test_prune_declaration_grants_delete() -> None:
    env = ControllerEnv()
    manager = Manager(env.server, runtime=env.runtime)
    manager.controller(Widget).owns(ConfigMap, prune=True).owns(Service).complete(IdleReconciler)
    verbs = ["get", "list", "watch", "create", "patch"]
    rules = policy_rules(manager.permissions)
    assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*verbs, "delete"]} in rules
    assert {"apiGroups": [""], "resources": ["services"], "verbs": verbs} in rules


def test_prune_declaration_of_data_raises() -> None:
    env = ControllerEnv()
    builder = Manager(env.server, runtime=env.runtime).controller(Widget)
    with pytest.raises(ValueError, match="deleting a PersistentVolumeClaim deletes data"):
        builder.owns(PersistentVolumeClaim, prune=True)
    builder.owns(metadata_only(Secret), prune=True).needs(Secret, "get", "list", "watch")
    with pytest.raises(ConfigurationError, match=r'\.needs\(Secret, "create", "patch", "delete"\)'):
        builder.complete(IdleReconciler)
