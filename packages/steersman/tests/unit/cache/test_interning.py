"""Equal parts are interned, others never, and unused parts evicted."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.api.core_v1 import Pod
from steersman.cache.interning import Interner
from steersman.meta import FrozenDict, FrozenStruct, Object, Quantity, decode, encode


def pod(name: str, *, value: str = "1", ready: str = "2026-01-01T00:00:00Z") -> Pod:
    """Decode a new pod, which shares no part with others yet."""
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "till", "tier": "front"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "till", "uid": "u"}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": "till",
                    "image": "till:1",
                    "args": ["--verbose", "--port=80"],
                    "env": [{"name": "VALUE", "value": value}, {"name": "OTHER", "value": "x"}],
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                    "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                    "volumeMounts": [{"name": f"token-{name}", "mountPath": "/token"}],
                }
            ],
            "volumes": [{"name": f"token-{name}", "emptyDir": {}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}],
        },
    }
    return decode(msgspec.json.encode(document), Pod)


def test_equal_parts_become_one() -> None:
    interner = Interner()
    one, two = interner.intern(pod("a")), interner.intern(pod("b"))
    assert (one, two) == (pod("a"), pod("b"))
    first, second = one.spec.containers[0], two.spec.containers[0]
    for part in ("env", "args", "readiness_probe", "image"):
        assert getattr(first, part) is getattr(second, part), part
    assert first.resources is not None
    assert second.resources is not None
    assert first.resources.requests is second.resources.requests
    assert one.metadata.labels is two.metadata.labels
    assert one.metadata.owner_references is two.metadata.owner_references
    assert one.spec.tolerations is two.spec.tolerations
    assert one.status.phase is two.status.phase


def test_interner_shares_equal_parts_of_different_objects() -> None:
    interner = Interner()
    one, two = interner.intern(pod("a", value="1")), interner.intern(pod("b", value="2"))
    assert (one, two) == (pod("a", value="1"), pod("b", value="2"))
    assert one.spec.containers[0].env[1] is two.spec.containers[0].env[1]


def test_interner_keeps_unchanged_parts_identical() -> None:
    interner = Interner()
    previous = interner.intern(pod("a"))
    changed = interner.intern(pod("a", ready="2026-01-01T00:01:00Z"), previous)
    assert changed == pod("a", ready="2026-01-01T00:01:00Z")
    assert changed.spec is previous.spec
    assert changed.metadata is previous.metadata


class Untyped(FrozenStruct):
    flag: Any = None
    flags: FrozenDict[str, Any] = FrozenDict()


class WithQuantity(FrozenStruct):
    size: Quantity = Quantity("0")
    sizes: FrozenDict[str, Quantity] = FrozenDict()


class UntypedMap(FrozenStruct):
    flags: FrozenDict[str, Any] = FrozenDict()


class MixedObject(Object):
    loose: tuple[Untyped, ...] = ()
    sized: tuple[WithQuantity, ...] = ()
    open: UntypedMap | None = None


def test_one_is_not_true() -> None:
    interner = Interner()
    for value in (True, 1, 1.0):
        flags = FrozenDict[str, Any]({"x": value})
        original = MixedObject(loose=(Untyped(flag=value, flags=flags),), open=UntypedMap(flags=flags))
        shared = interner.intern(decode(encode(original), MixedObject))
        assert encode(shared) == encode(original)


def test_one_that_becomes_true_has_changed() -> None:
    interner = Interner()
    previous = interner.intern(MixedObject(open=UntypedMap(flags=FrozenDict({"x": 1}))))
    changed = interner.intern(MixedObject(open=UntypedMap(flags=FrozenDict({"x": True}))), previous)
    assert changed.open is not None
    assert changed.open.flags["x"] is True


def test_interner_keeps_quantity_spelling() -> None:
    interner = Interner()
    for text in ("1Gi", "1024Mi", "1Gi"):
        size = Quantity(text)
        original = MixedObject(sized=(WithQuantity(size=size, sizes=FrozenDict({"memory": size})),))
        assert encode(interner.intern(decode(encode(original), MixedObject))) == encode(original)


def test_interner_evicts_unreferenced_parts() -> None:
    interner = Interner()
    for number in range(20_000):
        interner.intern(pod(f"pod-{number}"))
    assert len(interner) < 5_000


def test_interner_keeps_referenced_parts() -> None:
    interner = Interner()
    held = [interner.intern(pod(f"pod-{number}", value=str(number))) for number in range(2_000)]
    for number in range(5_000):
        interner.intern(pod(f"other-{number}"))
    again = interner.intern(pod("again", value="77"))
    assert again.spec.containers[0].env is held[77].spec.containers[0].env
