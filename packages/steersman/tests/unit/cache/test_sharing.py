"""Equal parts are held once, unequal ones are never mixed up, and what nobody holds is let go."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.api.core_v1 import Pod
from steersman.cache.sharing import Sharing
from steersman.meta import FrozenDict, FrozenStruct, Object, Quantity, decode, encode


def pod(name: str, *, value: str = "1", ready: str = "2026-01-01T00:00:00Z") -> Pod:
    """A pod as one of many of its kind, decoded anew, so that it shares nothing yet."""
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
    sharing = Sharing()
    one, two = sharing.share(pod("a")), sharing.share(pod("b"))
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
    assert one.status is not None
    assert two.status is not None
    assert one.status.phase is two.status.phase


def test_parts_of_unequal_ones_are_shared() -> None:
    sharing = Sharing()
    one, two = sharing.share(pod("a", value="1")), sharing.share(pod("b", value="2"))
    assert (one, two) == (pod("a", value="1"), pod("b", value="2"))
    assert one.spec.containers[0].env[1] is two.spec.containers[0].env[1]


def test_what_did_not_change_stays_the_same_object() -> None:
    sharing = Sharing()
    former = sharing.share(pod("a"))
    changed = sharing.share(pod("a", ready="2026-01-01T00:01:00Z"), former)
    assert changed == pod("a", ready="2026-01-01T00:01:00Z")
    assert changed.spec is former.spec
    assert changed.metadata is former.metadata


class Loose(FrozenStruct):
    flag: Any = None
    flags: FrozenDict[str, Any] = FrozenDict()


class Sized(FrozenStruct):
    size: Quantity = Quantity("0")
    sizes: FrozenDict[str, Quantity] = FrozenDict()


class Open(FrozenStruct):
    flags: FrozenDict[str, Any] = FrozenDict()


class Odd(Object):
    loose: tuple[Loose, ...] = ()
    sized: tuple[Sized, ...] = ()
    open: Open | None = None


def test_one_is_not_true() -> None:
    sharing = Sharing()
    for value in (True, 1, 1.0):
        flags = FrozenDict[str, Any]({"x": value})
        odd = Odd(loose=(Loose(flag=value, flags=flags),), open=Open(flags=flags))
        shared = sharing.share(decode(encode(odd), Odd))
        assert encode(shared) == encode(odd)


def test_one_that_becomes_true_has_changed() -> None:
    sharing = Sharing()
    former = sharing.share(Odd(open=Open(flags=FrozenDict({"x": 1}))))
    changed = sharing.share(Odd(open=Open(flags=FrozenDict({"x": True}))), former)
    assert changed.open is not None
    assert changed.open.flags["x"] is True


def test_quantities_stay_as_they_were_written() -> None:
    sharing = Sharing()
    for text in ("1Gi", "1024Mi", "1Gi"):
        size = Quantity(text)
        odd = Odd(sized=(Sized(size=size, sizes=FrozenDict({"memory": size})),))
        assert encode(sharing.share(decode(encode(odd), Odd))) == encode(odd)


def test_what_nobody_holds_is_let_go() -> None:
    sharing = Sharing()
    for number in range(20_000):
        sharing.share(pod(f"pod-{number}"))
    assert len(sharing) < 5_000


def test_what_is_held_is_kept() -> None:
    sharing = Sharing()
    held = [sharing.share(pod(f"pod-{number}", value=str(number))) for number in range(2_000)]
    for number in range(5_000):
        sharing.share(pod(f"other-{number}"))
    again = sharing.share(pod("again", value="77"))
    assert again.spec.containers[0].env is held[77].spec.containers[0].env
