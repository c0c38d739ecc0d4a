"""What is watched, and whom a change concerns."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import msgspec
import pytest

from framework_support.buoy import Buoy, buoy
from framework_support.fed_informer import FedInformer
from framework_support.world import World, key, settle
from steersman.api.core_v1 import ConfigMap, Node, Service
from steersman.controller import (
    LOW,
    Builder,
    Channel,
    Controller,
    ControllerOptions,
    Permission,
    Reconciler,
    Request,
    Result,
    created,
    generation_changed,
    has_label,
    referenced_by,
)
from steersman.errors import ConfigurationError
from steersman.manager import Manager
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, OwnerReference
from steersman.rbac import policy_rules
from steersman_testing import virtual_time


class Idle(Reconciler[Buoy]):
    """Does nothing."""

    async def reconcile(self, request: Request) -> Result:
        return Result()


class Bench:
    """A builder over informers that the test feeds by hand."""

    def __init__(self, kind: type[Any] = Buoy, *, started: bool = True) -> None:
        self.world = World()
        self.started = started
        self.informers: dict[type[Any], FedInformer] = {}
        self.registered: list[tuple[Controller, tuple[Permission, ...]]] = []
        self.builder = self.another(kind)

    def another(self, kind: type[Any] = Buoy) -> Builder[Any]:
        """A further builder over the same informers."""
        return Builder(
            kind,
            context=lambda _: self.world.context(),
            informer=cast("Any", self.informer),
            register=self._register,
        )

    def _register(self, controller: Controller, permissions: tuple[Permission, ...]) -> None:
        self.registered.append((controller, permissions))
        if self.started:
            # Its workers get no turn while a test waits for nothing but keys that are there.
            controller.start()

    def informer(self, kind: type[Any]) -> FedInformer:
        return self.informers.setdefault(kind, FedInformer())

    @property
    def controller(self) -> Controller:
        """The first that was built."""
        return self.registered[0][0]

    async def queued(self, number: int = 0) -> list[ObjectKey]:
        """What a controller's queue holds, in order; empties it."""
        queue = self.registered[number][0].queue
        taken: list[ObjectKey] = []
        while len(queue):
            taken.append(await queue.get())
        for request in taken:
            queue.done(request)
        return taken


def owned_by(
    name: str, api_version: str = "sea.example.com/v1", kind: str = "Buoy", *, controller: bool = True
) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-{name}", controller=controller)


def config_map(*owners: OwnerReference, version: int = 1, namespace: str = "sea") -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(
            name="cm", namespace=namespace, uid="u", resource_version=str(version), owner_references=owners
        )
    )


@virtual_time
async def test_changes_of_the_kind_itself() -> None:
    bench = Bench()
    bench.builder.complete(Idle)
    informer = bench.informer(Buoy)
    informer.replace((buoy("a", 1), buoy("b", 2)))
    assert await bench.queued() == [key("a"), key("b")]
    informer.upsert(buoy("a", 3))
    informer.delete(key("b"))
    assert await bench.queued() == [key("a"), key("b")]


@pytest.mark.parametrize(
    ("owner", "concerned"),
    [
        (owned_by("mother"), True),
        (owned_by("mother", "sea.example.com/v9"), True),
        (owned_by("mother", "lake.example.com/v1"), False),
        (owned_by("mother", "v1"), False),
        (owned_by("mother", kind="Ship"), False),
        (owned_by("mother", controller=False), False),
    ],
)
@virtual_time
async def test_an_owned_object_concerns_its_controller_alone(owner: OwnerReference, concerned: bool) -> None:
    bench = Bench()
    bench.builder.owns(ConfigMap).complete(Idle)
    bench.informer(ConfigMap).replace((config_map(owner),))
    assert await bench.queued() == ([key("mother")] if concerned else [])


@virtual_time
async def test_an_object_that_changes_hands_concerns_both() -> None:
    bench = Bench()
    bench.builder.owns(ConfigMap).complete(Idle)
    informer = bench.informer(ConfigMap)
    informer.replace((config_map(owned_by("old")),))
    await bench.queued()
    informer.upsert(config_map(owned_by("new"), version=2))
    assert await bench.queued() == [key("old"), key("new")]
    informer.delete(ObjectKey("sea", "cm"))
    assert await bench.queued() == [key("new")]


@virtual_time
async def test_a_cluster_scoped_owner_has_no_namespace() -> None:
    bench = Bench(Node)
    bench.builder.owns(ConfigMap).complete(Idle)
    bench.informer(ConfigMap).replace((config_map(owned_by("n1", "v1", "Node")),))
    assert await bench.queued() == [ObjectKey("", "n1")]


@virtual_time
async def test_mapped_objects() -> None:
    def by_label(service: Service) -> list[Request]:
        return [key(name) for name in service.metadata.labels.get("buoys", "").split()]

    bench = Bench()
    bench.builder.watches(Service, by_label).complete(Idle)
    metadata = ObjectMeta(name="s", namespace="sea", resource_version="1", labels=FrozenDict({"buoys": "a b"}))
    bench.informer(Service).replace((Service(metadata=metadata),))
    assert await bench.queued() == [key("a"), key("b")]
    changed = msgspec.structs.replace(metadata, resource_version="2", labels=FrozenDict({"buoys": "c"}))
    bench.informer(Service).upsert(Service(metadata=changed))
    assert await bench.queued() == [key("a"), key("b"), key("c")]


@virtual_time
async def test_predicates_hold_back_what_does_not_matter() -> None:
    bench = Bench()
    builder = bench.builder.with_predicate(generation_changed)
    builder.owns(ConfigMap, lambda change: change.new is None).complete(Idle)
    informer = bench.informer(Buoy)

    def generation(number: int, version: int) -> Buoy:
        obj = buoy("a", version)
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, generation=number))

    informer.replace((generation(1, 1),))
    assert await bench.queued() == [key("a")]
    informer.upsert(generation(1, 2))
    assert await bench.queued() == []
    informer.upsert(generation(2, 3))
    assert await bench.queued() == [key("a")]
    informer.delete(key("a"))
    assert await bench.queued() == [key("a")]
    bench.informer(ConfigMap).replace((config_map(owned_by("mother")),))
    assert await bench.queued() == []
    bench.informer(ConfigMap).replace(())
    assert await bench.queued() == [key("mother")]


@virtual_time
async def test_two_controllers_share_one_informer() -> None:
    bench = Bench()
    bench.builder.complete(Idle)
    bench.another().named("second").complete(Idle)
    bench.informer(Buoy).replace((buoy("a"),))
    assert await bench.queued(0) == await bench.queued(1) == [key("a")]
    assert bench.registered[1][0].name == "second"


def test_names_and_limits() -> None:
    bench = Bench(started=False)
    with pytest.raises(ValueError, match="must be 1 or more, not 0"):
        bench.builder.max_concurrent_reconciles(0)
    controller = bench.builder.max_concurrent_reconciles(5).complete(Idle)
    assert controller.name == "buoy"
    assert bench.registered[0][0] is controller


@virtual_time
async def test_retries_are_never_further_apart_than_told() -> None:
    controller = Bench().builder.max_retry_delay(0.008).complete(Idle)
    assert [controller.queue.add_rate_limited(key("a")) for _ in range(3)] == [0.005, 0.008, 0.008]


def test_permissions_follow_from_what_is_declared() -> None:
    bench = Bench(started=False)
    builder = bench.builder.owns(ConfigMap).permits(ConfigMap, "create", "patch").watches(Service, lambda _: ())
    builder.permits(Node, "get", subresource="proxy").complete(Idle)
    rules = policy_rules(bench.registered[0][1])
    assert {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "watch", "create", "patch"],
    } in rules
    assert {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]} in rules
    assert {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]} in rules
    assert {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]} in rules
    assert {"apiGroups": ["sea.example.com"], "resources": ["buoys/status"], "verbs": ["patch"]} in rules
    assert {"apiGroups": ["sea.example.com"], "resources": ["buoys/finalizers"], "verbs": ["update"]} in rules


@virtual_time
async def test_what_exists_already_is_reconciled_too() -> None:
    bench = Bench()
    bench.informer(Buoy).replace((buoy("a"),))
    bench.builder.complete(Idle)
    assert await bench.queued() == [key("a")]


def service(name: str, version: int = 1, *, namespace: str = "sea", **labels: str) -> Service:
    metadata = ObjectMeta(name=name, namespace=namespace, resource_version=str(version), labels=FrozenDict(labels))
    return Service(metadata=metadata)


def chained_to(obj: Buoy) -> list[str]:
    """The Services that a buoy names in a label."""
    return obj.metadata.labels.get("chain", "").split("_")


@pytest.mark.parametrize("declared", [False, True])
@virtual_time
async def test_an_object_concerns_those_that_refer_to_it(declared: bool) -> None:
    bench = Bench()
    if declared:
        bench.builder.index(
            Buoy, "chain", lambda obj: [f"{obj.metadata.namespace}/{each}" for each in chained_to(obj)]
        )
    references = "chain" if declared else chained_to
    bench.builder.watches(Service, referenced_by(Buoy, references)).complete(Idle)
    buoys, services = bench.informer(Buoy), bench.informer(Service)
    buoys.replace((buoy("a", labels={"chain": "x_y"}), buoy("b", labels={"chain": "y"}), buoy("c")))
    buoys.upsert(buoy("d", namespace="lake", labels={"chain": "y"}))
    await bench.queued()
    services.replace((service("x"), service("y"), service("z")))
    assert await bench.queued() == [key("a"), key("b")]
    buoys.upsert(buoy("a", 2, labels={"chain": "z"}))
    await bench.queued()
    services.upsert(service("y", 2))
    assert await bench.queued() == [key("b")]
    services.delete(key("z"))
    assert await bench.queued() == [key("a")]
    services.upsert(service("y", namespace="lake"))
    assert await bench.queued() == [ObjectKey("lake", "d")]


@virtual_time
async def test_references_to_other_namespaces_and_to_what_has_none() -> None:
    bench = Bench()
    bench.builder.watches(Service, referenced_by(Buoy, lambda _: [ObjectKey("harbour", "light")]))
    bench.builder.watches(Node, referenced_by(Buoy, lambda _: ["n1"])).complete(Idle)
    bench.informer(Buoy).replace((buoy("a"),))
    await bench.queued()
    bench.informer(Service).upsert(service("light", namespace="harbour"))
    assert await bench.queued() == [key("a")]
    bench.informer(Node).upsert(Node(metadata=ObjectMeta(name="n1")))
    assert await bench.queued() == [key("a")]
    bench.informer(Node).upsert(Node(metadata=ObjectMeta(name="n2")))
    assert await bench.queued() == []


def test_references_are_to_the_reconciled_kind() -> None:
    with pytest.raises(ValueError, match="must name the reconciled kind, Buoy, not Service"):
        Bench(started=False).builder.watches(ConfigMap, cast("Any", referenced_by(Service, lambda _: [])))


def test_an_index_has_one_meaning() -> None:
    bench = Bench(started=False)
    bench.builder.index(Buoy, "chain", chained_to).complete(Idle)
    with pytest.raises(ConfigurationError, match="'second', Buoy: index 'chain' exists already; choose another"):
        bench.another().named("second").index(Buoy, "chain", chained_to).complete(Idle)


@virtual_time
async def test_owners_that_do_not_control() -> None:
    bench = Bench()
    bench.builder.owns(ConfigMap, any_owner=True).complete(Idle)
    owners = owned_by("mother"), owned_by("aunt", controller=False), owned_by("ship", kind="Ship", controller=False)
    bench.informer(ConfigMap).replace((config_map(*owners),))
    assert await bench.queued() == [key("mother"), key("aunt")]


async def priorities(bench: Bench) -> dict[str, int]:
    """The priorities of what waits, by name; empties the queue."""
    found = {item.key.name: item.priority for item in bench.controller.queue.waiting()}
    await bench.queued()
    return found


@virtual_time
async def test_what_only_exists_waits_for_what_changes() -> None:
    bench = Bench()
    bench.builder.with_priority(3).owns(ConfigMap, priority=-5).complete(Idle)
    buoys, config_maps = bench.informer(Buoy), bench.informer(ConfigMap)
    buoys.replace((buoy("a", 1), buoy("b", 1)))
    assert await priorities(bench) == {"a": LOW, "b": LOW}
    buoys.resync()
    config_maps.replace((config_map(owned_by("c")),))
    assert await priorities(bench) == {"a": LOW, "b": LOW, "c": LOW}
    buoys.resync()
    buoys.upsert(buoy("b", 2))
    config_maps.upsert(config_map(owned_by("c"), version=2))
    assert await priorities(bench) == {"a": LOW, "b": 3, "c": -5}


@virtual_time
async def test_each_request_knows_its_triggers() -> None:
    bench = Bench()
    bench.builder.owns(ConfigMap).watches(Service, lambda _: [key("a")]).complete(Idle)
    try:
        bench.informer(Buoy).replace((buoy("a", 1),))
        bench.informer(Buoy).upsert(buoy("a", 2, depth=7))
        bench.informer(ConfigMap).upsert(config_map(owned_by("a")))
        bench.informer(ConfigMap).upsert(config_map(owned_by("a"), version=2))
        bench.informer(Service).upsert(service("s"))
        bench.informer(Service).delete(key("s"))
        [item] = bench.controller.queue.waiting()
        assert [str(trigger) for trigger in item.triggers] == [
            "Buoy sea/a initial (2 times)",
            "ConfigMap sea/cm created (2 times)",
            "Service sea/s deleted (2 times)",
        ]
        assert [trigger.origin for trigger in item.triggers] == ["for", "owns", "watches"]
    finally:
        await bench.controller.stop(1)


@virtual_time
async def test_a_standby_holds_keys_and_no_former_states() -> None:
    bench = Bench(started=False)
    bench.builder.owns(ConfigMap).complete(Idle)
    informer = bench.informer(Buoy)
    informer.replace((buoy("a", 1),))
    for number in range(2, 100):
        informer.upsert(buoy("a", number, depth=number))
        bench.informer(ConfigMap).upsert(config_map(owned_by("a"), version=number))
    [item] = bench.controller.queue.waiting()
    assert [str(trigger) for trigger in item.triggers] == ["Buoy sea/a initial (99 times)", "initial"]
    assert [trigger.changed_fields for trigger in item.triggers] == [(), ()]


@virtual_time
async def test_a_standby_forgets_what_is_gone() -> None:
    bench = Bench(started=False)
    bench.builder.with_predicate(created).owns(ConfigMap).watches(Service, lambda _: [key("made up")]).complete(Idle)
    buoys, config_maps, services = (bench.informer(kind) for kind in (Buoy, ConfigMap, Service))
    buoys.replace((buoy("a"), buoy("b")))
    config_maps.replace((config_map(owned_by("a")),))
    services.upsert(service("s"))
    buoys.delete(key("a"))
    # Its object outlives it for a moment, and is told of once more.
    config_maps.upsert(config_map(owned_by("a"), version=2))
    assert {item.key.name for item in bench.controller.queue.waiting()} == {"a", "b", "made up"}
    config_maps.delete(ObjectKey("sea", "cm"))
    config_maps.upsert(config_map(owned_by("b"), version=3))
    config_maps.delete(ObjectKey("sea", "cm"))
    services.delete(key("s"))
    assert {item.key.name for item in bench.controller.queue.waiting()} == {"b", "made up"}


@virtual_time
async def test_a_filter_applies_to_all_that_is_watched_and_to_sources() -> None:
    bench, channel = Bench(started=False), Channel()
    bench.builder.with_event_filter(has_label("target", "x")).owns(ConfigMap).source(channel).complete(Idle)
    bench.informer(Buoy).replace((buoy("a", labels={"target": "x"}), buoy("b", labels={"target": "y"})))
    bench.informer(ConfigMap).replace((config_map(owned_by("a")),))
    assert await bench.queued() == [key("a")]
    ran: list[Request] = []
    bench.controller.span = lambda info: nullcontext(ran.append(info.request))
    bench.controller.start()
    for name in ("a", "b", "unknown"):
        channel.push(key(name))
    await settle()
    assert ran == [key("a"), key("unknown")]
    await bench.controller.stop(1)


@virtual_time
async def test_predicates_add_up() -> None:
    bench = Bench()
    bench.builder.with_predicate(has_label("x")).with_predicate(has_label("y")).complete(Idle)
    bench.informer(Buoy).replace((buoy("a", labels={"x": ""}), buoy("b", labels={"x": "", "y": ""})))
    assert await bench.queued() == [key("b")]


def test_options() -> None:
    builder = (
        Bench(started=False)
        .builder.reconcile_timeout(60)
        .base_retry_delay(1)
        .max_retry_delay(9)
        .needs_leader_election(False)
    )
    controller = builder.max_concurrent_reconciles(3).complete(Idle)
    assert controller.options == ControllerOptions(
        max_concurrent_reconciles=3,
        base_retry_delay=1,
        max_retry_delay=9,
        reconcile_timeout=60,
        needs_leader_election=False,
    )


@pytest.mark.parametrize("option", ["reconcile_timeout", "base_retry_delay"])
def test_times_are_above_zero(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be above 0 s, not 0"):
        getattr(Bench(started=False).builder, option)(0)


def test_two_controllers_of_one_name_are_refused() -> None:
    manager = Manager(World().server)
    manager.controller(Buoy).complete(Idle)
    with pytest.raises(ConfigurationError, match=r"two controllers named 'buoy': give one \.named\(\.\.\.\)"):
        manager.controller(Buoy).complete(Idle)
    manager.controller(Buoy).named("second").complete(Idle)
