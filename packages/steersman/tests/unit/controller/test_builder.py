"""The builder: watches, mappings and permissions."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import msgspec
import pytest

from framework_support.controller_env import ControllerEnv, drain_event_loop, key
from framework_support.informers import ManualInformer
from framework_support.widget import Widget, widget
from steersman.api.core_v1 import ConfigMap, Node, Secret, Service
from steersman.controller import (
    LOW_PRIORITY,
    Builder,
    Channel,
    Controller,
    ControllerOptions,
    Permission,
    Request,
    RequestReconciler,
    Result,
    generation_changed,
    has_label,
    on_create,
    referenced_by,
)
from steersman.errors import ConfigurationError
from steersman.manager import Manager
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, OwnerReference, metadata_only
from steersman_manifests.rbac import policy_rules
from steersman_testing import virtual_time


class NoopReconciler(RequestReconciler[Widget]):
    """Does nothing."""

    async def reconcile(self, request: Request) -> Result:
        return Result()


class BuilderHarness:
    """A builder with informers that the test fills."""

    def __init__(self, kind: type[Any] = Widget, *, started: bool = True) -> None:
        self.world = ControllerEnv()
        self.started = started
        self.informers: dict[type[Any], ManualInformer] = {}
        self.registered: list[tuple[Controller, tuple[Permission, ...]]] = []
        self.reconciled: list[Request] = []
        self.builder = self.new_builder(kind)

    def new_builder(self, kind: type[Any] = Widget) -> Builder[Any]:
        """A further builder over the same informers."""
        return Builder(
            kind,
            context=lambda _: self.world.context(),
            informer=cast("Any", self.informer),
            register=self._register,
            trace_span=lambda _: lambda info: nullcontext(self.reconciled.append(info.request)),
        )

    def _register(self, controller: Controller) -> None:
        self.registered.append((controller, controller.spec.permissions))
        if self.started:
            # The workers do not run while a test only takes ready keys.
            controller.start()

    def informer(self, kind: type[Any], *, optional: bool | None = None) -> ManualInformer:
        return self.informers.setdefault(kind, ManualInformer())

    @property
    def controller(self) -> Controller:
        """The controller that was built first."""
        return self.registered[0][0]

    async def drain_queue(self, number: int = 0) -> list[Request]:
        """Take all keys from a controller's queue, in order."""
        queue = self.registered[number][0].queue
        taken: list[Request] = []
        while len(queue):
            taken.append(await queue.get())
        for request in taken:
            queue.done(request)
        return taken


def owner_reference(
    name: str, api_version: str = "shop.example.com/v1", kind: str = "Widget", *, controller: bool = True
) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-{name}", controller=controller)


def config_map(*owners: OwnerReference, version: int = 1, namespace: str = "orders") -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(
            name="cm", namespace=namespace, uid="u", resource_version=str(version), owner_references=owners
        )
    )


@pytest.mark.requirement("design/informer", "programming/queue")
@virtual_time
async def test_changes_of_the_kind_itself() -> None:
    harness = BuilderHarness()
    harness.builder.complete(NoopReconciler)
    informer = harness.informer(Widget)
    informer.replace((widget("a", 1), widget("b", 2)))
    assert await harness.drain_queue() == [key("a"), key("b")]
    informer.upsert(widget("a", 3))
    informer.delete(key("b"))
    assert await harness.drain_queue() == [key("a"), key("b")]


@pytest.mark.requirement("overview/owns")
@pytest.mark.parametrize(
    ("owner", "concerned"),
    [
        (owner_reference("mother"), True),
        (owner_reference("mother", "shop.example.com/v9"), True),
        (owner_reference("mother", "lake.example.com/v1"), False),
        (owner_reference("mother", "v1"), False),
        (owner_reference("mother", kind="Ship"), False),
        (owner_reference("mother", controller=False), False),
    ],
)
@virtual_time
async def test_owned_object_enqueues_its_controller_only(owner: OwnerReference, concerned: bool) -> None:
    harness = BuilderHarness()
    harness.builder.owns(ConfigMap).complete(NoopReconciler)
    harness.informer(ConfigMap).replace((config_map(owner),))
    assert await harness.drain_queue() == ([key("mother")] if concerned else [])


@virtual_time
async def test_changed_owner_enqueues_both_owners() -> None:
    harness = BuilderHarness()
    harness.builder.owns(ConfigMap).complete(NoopReconciler)
    informer = harness.informer(ConfigMap)
    informer.replace((config_map(owner_reference("old")),))
    await harness.drain_queue()
    informer.upsert(config_map(owner_reference("new"), version=2))
    assert await harness.drain_queue() == [key("old"), key("new")]
    informer.delete(ObjectKey("orders", "cm"))
    assert await harness.drain_queue() == [key("new")]


@virtual_time
async def test_cluster_scoped_owner_has_no_namespace() -> None:
    harness = BuilderHarness(Node)
    harness.builder.owns(ConfigMap).complete(NoopReconciler)
    harness.informer(ConfigMap).replace((config_map(owner_reference("n1", "v1", "Node")),))
    assert await harness.drain_queue() == [ObjectKey("", "n1")]


@virtual_time
async def test_mapped_objects() -> None:
    def by_label(service: Service) -> list[Request]:
        return [key(name) for name in service.metadata.labels.get("widgets", "").split()]

    harness = BuilderHarness()
    harness.builder.watches(Service, by_label).complete(NoopReconciler)
    metadata = ObjectMeta(name="s", namespace="orders", resource_version="1", labels=FrozenDict({"widgets": "a b"}))
    harness.informer(Service).replace((Service(metadata=metadata),))
    assert await harness.drain_queue() == [key("a"), key("b")]
    changed = msgspec.structs.replace(metadata, resource_version="2", labels=FrozenDict({"widgets": "c"}))
    harness.informer(Service).upsert(Service(metadata=changed))
    assert await harness.drain_queue() == [key("a"), key("b"), key("c")]


@virtual_time
async def test_builder_predicates_filter_events() -> None:
    harness = BuilderHarness()
    builder = harness.builder.with_predicate(generation_changed)
    builder.owns(ConfigMap, lambda change: change.new is None).complete(NoopReconciler)
    informer = harness.informer(Widget)

    def generation(number: int, version: int) -> Widget:
        obj = widget("a", version)
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, generation=number))

    informer.replace((generation(1, 1),))
    assert await harness.drain_queue() == [key("a")]
    informer.upsert(generation(1, 2))
    assert await harness.drain_queue() == []
    informer.upsert(generation(2, 3))
    assert await harness.drain_queue() == [key("a")]
    informer.delete(key("a"))
    assert await harness.drain_queue() == [key("a")]
    harness.informer(ConfigMap).replace((config_map(owner_reference("mother")),))
    assert await harness.drain_queue() == []
    harness.informer(ConfigMap).replace(())
    assert await harness.drain_queue() == [key("mother")]


@virtual_time
async def test_two_controllers_share_one_informer() -> None:
    harness = BuilderHarness()
    harness.builder.complete(NoopReconciler)
    harness.new_builder().named("second").complete(NoopReconciler)
    harness.informer(Widget).replace((widget("a"),))
    assert await harness.drain_queue(0) == await harness.drain_queue(1) == [key("a")]
    assert harness.registered[1][0].name == "second"


@pytest.mark.requirement("overview/concurrency")
def test_names_and_limits() -> None:
    harness = BuilderHarness(started=False)
    with pytest.raises(ValueError, match="must be 1 or more, not 0"):
        harness.builder.max_concurrent_reconciles(0)
    controller = harness.builder.max_concurrent_reconciles(5).complete(NoopReconciler)
    assert controller.name == "widget"
    assert harness.registered[0][0] is controller


@virtual_time
async def test_builder_max_retry_delay_limits_back_off() -> None:
    controller = BuilderHarness().builder.max_retry_delay(0.008).complete(NoopReconciler)
    assert [controller.queue.add_rate_limited(key("a")) for _ in range(3)] == [0.005, 0.008, 0.008]


def test_builder_permissions_follow_declarations() -> None:
    harness = BuilderHarness(started=False)
    builder = harness.builder.owns(ConfigMap).watches(Service, lambda _: ())
    builder.needs(Node, "get", subresource="proxy").complete(NoopReconciler)
    rules = policy_rules(harness.registered[0][1])
    assert {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "watch", "create", "patch"],
    } in rules
    assert {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]} in rules
    assert {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]} in rules
    assert {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]} in rules
    assert {"apiGroups": ["shop.example.com"], "resources": ["widgets/status"], "verbs": ["patch"]} in rules
    assert {"apiGroups": ["shop.example.com"], "resources": ["widgets/finalizers"], "verbs": ["update"]} in rules


def test_builder_index_grants_reads_of_its_kind() -> None:
    harness = BuilderHarness(started=False)
    builder = harness.builder.owns(ConfigMap)
    for kind in (ConfigMap, Service):
        builder.index(kind, "a", lambda _: ())
    builder.complete(NoopReconciler)
    permissions = harness.registered[0][1]
    verbs = {p.resource.kind: p.verbs for p in permissions}
    assert verbs["Service"] == ("get", "list", "watch")
    assert [p.verbs for p in permissions if p.resource.kind == "ConfigMap"] == [verbs["ConfigMap"]]


def test_builder_index_grants_nothing_on_secrets() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.index(metadata_only(Secret), "a", lambda _: ()).complete(NoopReconciler)
    assert not [p for p in harness.registered[0][1] if p.resource.kind == "Secret"]


def test_builder_owned_secret_without_needs_raises() -> None:
    builder = BuilderHarness(started=False).builder.owns(Secret)
    with pytest.raises(ConfigurationError, match=r'\.needs\(Secret, "get", "list", "watch", "create", "patch"\)'):
        builder.complete(NoopReconciler)
    # An informer lists all Secrets: permission for one of them does not suffice.
    builder.needs(Secret, "get", "list", "watch", names=("token",))
    with pytest.raises(ConfigurationError, match="owns Secret"):
        builder.complete(NoopReconciler)


def test_builder_owned_secret_has_needed_verbs_only() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.owns(Secret).needs(Secret, "get", "list", "watch").complete(NoopReconciler)
    rules = policy_rules(harness.registered[0][1])
    assert {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]} in rules


def test_needs_names_limit_rule_to_objects() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.needs(Secret, "get", names=("token",)).complete(NoopReconciler)
    rules = policy_rules(harness.registered[0][1])
    expected = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["token"]}
    assert expected in rules


@pytest.mark.parametrize(
    ("verbs", "names", "message"),
    [
        ((), (), "without verbs"),
        (("GET",), (), "'GET' is not a verb"),
        (("*",), (), "is not a verb"),
        (("get",), "token", "names must be a tuple"),
        (("get",), ("",), "names must be a tuple"),
    ],
)
def test_needs_malformed_declaration_raises(verbs: tuple[str, ...], names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BuilderHarness(started=False).builder.needs(Secret, *verbs, names=names)


@pytest.mark.requirement("pattern/configured-objects")
@virtual_time
async def test_builder_existing_objects_are_enqueued() -> None:
    harness = BuilderHarness()
    harness.informer(Widget).replace((widget("a"),))
    harness.builder.complete(NoopReconciler)
    assert await harness.drain_queue() == [key("a")]


def service(name: str, version: int = 1, *, namespace: str = "orders", **labels: str) -> Service:
    metadata = ObjectMeta(name=name, namespace=namespace, resource_version=str(version), labels=FrozenDict(labels))
    return Service(metadata=metadata)


def chained_services(obj: Widget) -> list[str]:
    """The Services that a widget names in a label."""
    return obj.metadata.labels.get("chain", "").split("_")


@pytest.mark.parametrize("declared", [False, True])
@virtual_time
async def test_referenced_object_enqueues_referrers(declared: bool) -> None:
    harness = BuilderHarness()
    if declared:
        harness.builder.index(
            Widget, "chain", lambda obj: [f"{obj.metadata.namespace}/{each}" for each in chained_services(obj)]
        )
    references = "chain" if declared else chained_services
    harness.builder.watches(Service, referenced_by(Widget, references)).complete(NoopReconciler)
    widgets, services = harness.informer(Widget), harness.informer(Service)
    widgets.replace((widget("a", labels={"chain": "x_y"}), widget("b", labels={"chain": "y"}), widget("c")))
    widgets.upsert(widget("d", namespace="lake", labels={"chain": "y"}))
    await harness.drain_queue()
    services.replace((service("x"), service("y"), service("z")))
    assert await harness.drain_queue() == [key("a"), key("b")]
    widgets.upsert(widget("a", 2, labels={"chain": "z"}))
    await harness.drain_queue()
    services.upsert(service("y", 2))
    assert await harness.drain_queue() == [key("b")]
    services.delete(key("z"))
    assert await harness.drain_queue() == [key("a")]
    services.upsert(service("y", namespace="lake"))
    assert await harness.drain_queue() == [ObjectKey("lake", "d")]


@virtual_time
async def test_builder_references_respect_namespaces() -> None:
    harness = BuilderHarness()
    harness.builder.watches(Service, referenced_by(Widget, lambda _: [ObjectKey("harbour", "light")]))
    harness.builder.watches(Node, referenced_by(Widget, lambda _: ["n1"])).complete(NoopReconciler)
    harness.informer(Widget).replace((widget("a"),))
    await harness.drain_queue()
    harness.informer(Service).upsert(service("light", namespace="harbour"))
    assert await harness.drain_queue() == [key("a")]
    harness.informer(Node).upsert(Node(metadata=ObjectMeta(name="n1")))
    assert await harness.drain_queue() == [key("a")]
    harness.informer(Node).upsert(Node(metadata=ObjectMeta(name="n2")))
    assert await harness.drain_queue() == []


def test_references_are_to_the_reconciled_kind() -> None:
    with pytest.raises(ValueError, match="must name the reconciled kind, Widget, not Service"):
        BuilderHarness(started=False).builder.watches(ConfigMap, cast("Any", referenced_by(Service, lambda _: [])))


def test_duplicate_index_is_rejected() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.index(Widget, "chain", chained_services).complete(NoopReconciler)
    with pytest.raises(ConfigurationError, match="'second', Widget: index 'chain' exists already; choose another"):
        harness.new_builder().named("second").index(Widget, "chain", chained_services).complete(NoopReconciler)


@virtual_time
async def test_owners_that_do_not_control() -> None:
    harness = BuilderHarness()
    harness.builder.owns(ConfigMap, any_owner=True).complete(NoopReconciler)
    owners = (
        owner_reference("mother"),
        owner_reference("aunt", controller=False),
        owner_reference("ship", kind="Ship", controller=False),
    )
    harness.informer(ConfigMap).replace((config_map(*owners),))
    assert await harness.drain_queue() == [key("mother"), key("aunt")]


async def drain_priorities(harness: BuilderHarness) -> dict[str, int]:
    """Drain the queue, and return the priorities by name."""
    found = {item.key.name: item.priority for item in harness.controller.queue.waiting()}
    await harness.drain_queue()
    return found


@virtual_time
async def test_builder_initial_list_has_low_priority() -> None:
    harness = BuilderHarness()
    harness.builder.with_priority(3).owns(ConfigMap, priority=-5).complete(NoopReconciler)
    widgets, config_maps = harness.informer(Widget), harness.informer(ConfigMap)
    widgets.replace((widget("a", 1), widget("b", 1)))
    assert await drain_priorities(harness) == {"a": LOW_PRIORITY, "b": LOW_PRIORITY}
    widgets.resync()
    config_maps.replace((config_map(owner_reference("c")),))
    assert await drain_priorities(harness) == {"a": LOW_PRIORITY, "b": LOW_PRIORITY, "c": LOW_PRIORITY}
    widgets.resync()
    widgets.upsert(widget("b", 2))
    config_maps.upsert(config_map(owner_reference("c"), version=2))
    assert await drain_priorities(harness) == {"a": LOW_PRIORITY, "b": 3, "c": -5}


@virtual_time
async def test_queue_items_carry_their_triggers() -> None:
    harness = BuilderHarness()
    harness.builder.owns(ConfigMap).watches(Service, lambda _: [key("a")]).complete(NoopReconciler)
    try:
        harness.informer(Widget).replace((widget("a", 1),))
        harness.informer(Widget).upsert(widget("a", 2, depth=7))
        harness.informer(ConfigMap).upsert(config_map(owner_reference("a")))
        harness.informer(ConfigMap).upsert(config_map(owner_reference("a"), version=2))
        harness.informer(Service).upsert(service("s"))
        harness.informer(Service).delete(key("s"))
        [item] = harness.controller.queue.waiting()
        assert [str(trigger) for trigger in item.triggers] == [
            "Widget orders/a initial (2 times)",
            "ConfigMap orders/cm created (2 times)",
            "Service orders/s deleted (2 times)",
        ]
        assert [trigger.origin for trigger in item.triggers] == ["for", "owns", "watches"]
    finally:
        await harness.controller.stop(1)


@virtual_time
async def test_standby_queue_holds_keys_without_old_objects() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.owns(ConfigMap).complete(NoopReconciler)
    informer = harness.informer(Widget)
    informer.replace((widget("a", 1),))
    for number in range(2, 100):
        informer.upsert(widget("a", number, depth=number))
        harness.informer(ConfigMap).upsert(config_map(owner_reference("a"), version=number))
    [item] = harness.controller.queue.waiting()
    assert [str(trigger) for trigger in item.triggers] == ["Widget orders/a initial (99 times)", "initial"]
    assert [trigger.changed_fields for trigger in item.triggers] == [(), ()]


@virtual_time
async def test_standby_queue_drops_deleted_keys() -> None:
    harness = BuilderHarness(started=False)
    harness.builder.with_predicate(on_create).owns(ConfigMap).watches(Service, lambda _: [key("made up")]).complete(
        NoopReconciler
    )
    widgets, config_maps, services = (harness.informer(kind) for kind in (Widget, ConfigMap, Service))
    widgets.replace((widget("a"), widget("b")))
    config_maps.replace((config_map(owner_reference("a")),))
    services.upsert(service("s"))
    widgets.delete(key("a"))
    # The owned object exists a moment longer and sends one more event.
    config_maps.upsert(config_map(owner_reference("a"), version=2))
    assert {item.key.name for item in harness.controller.queue.waiting()} == {"a", "b", "made up"}
    config_maps.delete(ObjectKey("orders", "cm"))
    config_maps.upsert(config_map(owner_reference("b"), version=3))
    config_maps.delete(ObjectKey("orders", "cm"))
    services.delete(key("s"))
    assert {item.key.name for item in harness.controller.queue.waiting()} == {"b", "made up"}


@virtual_time
async def test_event_filter_applies_to_watches_and_sources() -> None:
    harness, channel = BuilderHarness(started=False), Channel()
    harness.builder.with_event_filter(has_label("target", "x")).owns(ConfigMap).source(channel).complete(
        NoopReconciler
    )
    harness.informer(Widget).replace((widget("a", labels={"target": "x"}), widget("b", labels={"target": "y"})))
    harness.informer(ConfigMap).replace((config_map(owner_reference("a")),))
    assert await harness.drain_queue() == [key("a")]
    ran = harness.reconciled
    harness.controller.start()
    for name in ("a", "b", "unknown"):
        channel.enqueue(key(name))
    await drain_event_loop()
    assert ran == [key("a"), key("unknown")]
    await harness.controller.stop(1)


@virtual_time
async def test_predicates_are_combined_with_and() -> None:
    harness = BuilderHarness()
    harness.builder.with_predicate(has_label("x")).with_predicate(has_label("y")).complete(NoopReconciler)
    harness.informer(Widget).replace((widget("a", labels={"x": ""}), widget("b", labels={"x": "", "y": ""})))
    assert await harness.drain_queue() == [key("b")]


def test_options() -> None:
    builder = (
        BuilderHarness(started=False)
        .builder.reconcile_timeout(60)
        .base_retry_delay(1)
        .max_retry_delay(9)
        .needs_leader_election(False)
    )
    controller = builder.max_concurrent_reconciles(3).complete(NoopReconciler)
    assert controller.options == ControllerOptions(
        max_concurrent_reconciles=3,
        base_retry_delay=1,
        max_retry_delay=9,
        reconcile_timeout=60,
        needs_leader_election=False,
    )


@pytest.mark.parametrize("option", ["reconcile_timeout", "base_retry_delay", "max_retry_delay"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_times_are_above_zero(option: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"{option} must be above 0 s, not {seconds}"):
        getattr(BuilderHarness(started=False).builder, option)(seconds)


def test_max_retry_delay_is_not_below_the_base_delay() -> None:
    builder = BuilderHarness(started=False).builder.base_retry_delay(2)
    with pytest.raises(ValueError, match=r"max_retry_delay \(1 s\) is below base_retry_delay \(2 s\)"):
        builder.max_retry_delay(1)
    builder.max_retry_delay(2)
    with pytest.raises(ValueError, match=r"max_retry_delay \(2 s\) is below base_retry_delay \(3 s\)"):
        builder.base_retry_delay(3)


def test_two_controllers_of_one_name_are_refused() -> None:
    manager = Manager(ControllerEnv().server)
    manager.controller(Widget).complete(NoopReconciler)
    with pytest.raises(ConfigurationError, match=r"'widget' is used twice: set another name with \.named\("):
        manager.controller(Widget).complete(NoopReconciler)
    manager.controller(Widget).named("second").complete(NoopReconciler)
